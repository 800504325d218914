"""One damaged file of any class beside eight good ranks: what does the command line say, and what does it count?"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.damaged_runs.classes import CLASSES
from tests.damaged_runs.damaged_run import DamagedRun
from tests.damaged_runs.good_run import BAD, GOOD, rank_trace, write_good_run
from tracekit.cli import cli

PARTS = ("step_ns", "compute_ns", "comm_ns", "overlapped_comm_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns")
BY_RANK = ("ranks", "steps", "idle_causes", "communication")


def analyze(*paths: Path, options: tuple[str, ...] = ("--no-cache",)) -> Result:
    return CliRunner().invoke(cli, ["analyze", *map(str, paths), "--json", "--jobs", "1", *options])


def printed(*paths: Path, options: tuple[str, ...] = ("--no-cache",)) -> str:
    outcome = analyze(*paths, options=options)
    assert outcome.exit_code == 0, outcome.output
    return outcome.stdout


def answer(folder: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(printed(folder))
    return result


def contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "no file"
        for path in sorted(folder.rglob("*"))
    }


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


@dataclass(frozen=True)
class Analysed:
    """A damaged run in `folder`, and what `tracekit analyze` printed about it."""

    of_class: DamagedRun
    folder: Path
    before: dict[str, str]
    printed: str


@pytest.fixture(scope="module")
def damaged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Analysed:
    of_class = CLASSES[request.param]
    folder = write_good_run(tmp_path_factory.mktemp("damaged") / "run")
    of_class.write(folder / f"rank{BAD}.json")
    return Analysed(of_class, folder, contents(folder), printed(folder))


def of_ranks(result: dict[str, Any], table: str) -> list[dict[str, Any]]:
    """Return the rows of the good ranks, without the ids of groups."""
    rows = [row for row in result[table] if row["rank"] in GOOD]
    return [{key: value for key, value in row.items() if key != "group"} for row in rows]


@pytest.mark.parametrize("damaged", CLASSES, indirect=True)
def test_the_good_ranks_keep_their_numbers_and_a_note_says_what_is_wrong(
    damaged: Analysed, good: dict[str, Any], undamaged: dict[int, dict[str, Any]]
) -> None:
    of_class, actual = damaged.of_class, json.loads(damaged.printed)
    for table in BY_RANK:
        assert of_ranks(actual, table) == of_ranks(good, table)
    if of_class.says:
        about = [note for note in actual["notes"] if of_class.says in note["text"]]
        assert [note["file"] or "" for note in about] == [of_class.file], actual["notes"]
        assert of_class.kind in ("", about[0]["id"])
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


@pytest.mark.parametrize("damaged", sorted(CLASSES.keys() - {"gzip bomb"})[::4], indirect=True)
def test_neither_decoder_nor_cache_nor_the_order_of_files_matter(
    damaged: Analysed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GIVEN a run analysed THEN all other ways to analyse it print the same, and nothing in its folder is changed.

    With `--strict` the exit code tells defects from other notes.
    """
    is_defect = damaged.of_class.is_defect or damaged.of_class.bad_rank == "missing"
    with monkeypatch.context() as portable:
        portable.setenv("TRACEKIT_NATIVE", "0")
        strict = analyze(damaged.folder, options=("--no-cache", "--strict"))
    assert (strict.exit_code, strict.stdout) == (3 if is_defect else 0, damaged.printed)

    monkeypatch.setenv("TRACEKIT_CACHE", str(tmp_path / "cache"))
    assert printed(damaged.folder, options=()) == damaged.printed  # this fills the cache
    files = sorted((path for path in damaged.folder.iterdir() if ".json" in path.suffixes), reverse=True)
    as_typed = damaged.printed.replace(str(damaged.folder), " ".join(map(str, files)))
    assert printed(*files, options=()) == as_typed
    assert contents(damaged.folder) == damaged.before


@pytest.mark.parametrize(
    "damaged", ["events of another file", "a clock that jumps", "durations times 1000", "empty file"], indirect=True
)
def test_the_number_of_jobs_does_not_matter(damaged: Analysed) -> None:
    command = ["analyze", str(damaged.folder), "--json", "--no-cache", "--jobs", "3"]
    assert CliRunner().invoke(cli, command).stdout == damaged.printed
