"""One damaged file of any class beside eight good ranks: what does the command line say, and what does it count?"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.damaged_runs.classes import CLASSES, DamagedRun
from tests.damaged_runs.good_run import BAD, GOOD, rank_trace, write_good_run
from tracekit.cli import cli

PARTS = ("step_ns", "compute_ns", "comm_ns", "overlapped_comm_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns")
BY_RANK = ("ranks", "steps", "idle", "idle_causes", "communication")


def analyze(*paths: Path, options: tuple[str, ...] = ("--no-cache",)) -> Result:
    return CliRunner().invoke(cli, ["analyze", *map(str, paths), "--json", "--jobs", "1", *options])


def answer(*paths: Path, options: tuple[str, ...] = ("--no-cache",)) -> dict[str, Any]:
    outcome = analyze(*paths, options=options)
    assert outcome.exit_code == 0, outcome.output
    result: dict[str, Any] = json.loads(outcome.stdout)
    return result


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The answer about the eight good ranks alone."""
    return answer(write_good_run(tmp_path_factory.mktemp("good")))


@pytest.fixture(scope="module")
def undamaged(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, Any]]:
    """The steps of the ninth rank before it is damaged."""
    folder = write_good_run(tmp_path_factory.mktemp("undamaged"))
    rank_trace().write(folder / f"rank{BAD}.json")
    return {row["step"]: row for row in answer(folder)["steps"] if row["rank"] == BAD}


@pytest.fixture
def damaged(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[DamagedRun, Path]:
    of_class = CLASSES[request.param]
    folder = write_good_run(tmp_path / "run")
    of_class.write(folder / f"rank{BAD}.json")
    return of_class, folder


every_class = pytest.mark.parametrize("damaged", CLASSES, indirect=True)


def of_ranks(result: dict[str, Any], table: str) -> list[dict[str, Any]]:
    """Return the rows of the good ranks, without the ids of groups."""
    rows = [row for row in result[table] if row["rank"] in GOOD]
    return [{key: value for key, value in row.items() if key != "group"} for row in rows]


def contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "no file"
        for path in sorted(folder.rglob("*"))
    }


@every_class
def test_the_good_ranks_keep_their_numbers_and_a_note_says_what_is_wrong(
    damaged: tuple[DamagedRun, Path], good: dict[str, Any], undamaged: dict[int, dict[str, Any]]
) -> None:
    of_class, folder = damaged
    before = contents(folder)

    actual = answer(folder)

    assert contents(folder) == before
    for table in BY_RANK:
        assert of_ranks(actual, table) == of_ranks(good, table)
    if of_class.says:
        about = [note for note in actual["notes"] if of_class.says in note["text"]]
        assert [(note["kind"], note["file"] or "") for note in about] == [(of_class.kind, of_class.file)], actual[
            "notes"
        ]
        assert of_class.file in about[0]["text"]
    counting = {row["step"]: row for row in actual["steps"] if row["rank"] == BAD and row["complete"]}
    match of_class.bad_rank:
        case "missing":
            assert actual["run"]["missing_ranks"] == [BAD]
        case "n/a":
            assert [row["rank"] for row in actual["run"]["unmeasured_ranks"]] == [BAD]
            assert counting == {}
        case "as undamaged":
            assert set(counting) == set(undamaged)
        case steps:
            assert set(counting) == set(steps)
    for step, row in counting.items():
        assert {part: row[part] for part in PARTS} == {part: undamaged[step][part] for part in PARTS}


@every_class
def test_strict_tells_defects_from_other_notes(damaged: tuple[DamagedRun, Path]) -> None:
    of_class, folder = damaged
    is_defect = of_class.is_defect or of_class.bad_rank == "missing"
    assert analyze(folder, options=("--no-cache", "--strict")).exit_code == (3 if is_defect else 0)


@every_class
def test_neither_the_order_of_files_nor_decoder_nor_cache_matter(
    damaged: tuple[DamagedRun, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, folder = damaged
    expected = analyze(folder).stdout

    monkeypatch.setenv("TRACEKIT_NATIVE", "0")
    assert analyze(folder).stdout == expected
    monkeypatch.delenv("TRACEKIT_NATIVE")

    monkeypatch.setenv("TRACEKIT_CACHE", str(tmp_path / "cache"))
    before = contents(folder)
    assert [analyze(folder, options=()).stdout for _ in range(2)] == [expected] * 2
    assert contents(folder) == before

    files = sorted(path for path in folder.iterdir() if path.suffix != ".txt" and not path.is_dir())
    texts = [analyze(*typed).stdout.replace(" ".join(map(str, typed)), "RUN") for typed in (files, [*reversed(files)])]
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    "damaged", ["events of another file", "a clock that jumps", "durations times 1000", "empty file"], indirect=True
)
def test_the_number_of_jobs_does_not_matter(damaged: tuple[DamagedRun, Path]) -> None:
    _, folder = damaged
    command = ["analyze", str(folder), "--json", "--no-cache", "--jobs"]
    texts = [CliRunner().invoke(cli, [*command, jobs]).stdout for jobs in ("1", "3")]
    assert texts[0] == texts[1] != ""
