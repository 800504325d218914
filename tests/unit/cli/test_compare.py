"""`tracekit compare`: what it prints and writes, and how it fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.unit.cli.compared_folders import STEADY, longer, write_run
from tracekit.cli import cli


def compare(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["compare", "--no-cache", *map(str, arguments)], prog_name="tracekit")


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    return write_run(tmp_path / "main", STEADY), write_run(tmp_path / "branch", longer(100))


def test_a_slower_run(runs: tuple[Path, Path]) -> None:
    result = compare(*runs)
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert "slower: a step takes 0.10 ms (10.0%) longer" in result.stdout
    assert len(lines) <= 24
    assert lines[-1] == f"Next: tracekit analyze {runs[1]}"


def test_json_has_the_verdict_and_causes_that_add_up(runs: tuple[Path, Path]) -> None:
    found = json.loads(compare(*runs, "--json").stdout)
    assert found["schema_version"] == 1
    change = found["change"]
    assert (change["verdict"], change["baseline_ns"], change["candidate_ns"]) == ("slower", 1_000_000, 1_100_000)
    assert change["ratio_low"] < change["ratio"] < change["ratio_high"]
    assert (change["run_noise"], change["run_noise_is_measured"]) == (0.02, False)
    assert sum(row["change_ns"] for row in found["causes"]) == change["change_ns"] == 100_000
    assert found["causes"][0]["cause"] == "compute"
    assert {row["dimension"] for row in found["explored"]} >= {"rank", "group"}
    assert [side["steps"] for side in (*found["baselines"], found["candidate"])] == [10, 10]


def test_equal_runs_give_equal_bytes(runs: tuple[Path, Path]) -> None:
    assert compare(*runs, "--json").stdout == compare(*runs, "--json").stdout


def test_three_baselines_show_the_noise_between_runs(tmp_path: Path, runs: tuple[Path, Path]) -> None:
    others = [write_run(tmp_path / f"main{by}", longer(by)) for by in (5, 10)]
    found = json.loads(compare(runs[0], *others, runs[1], "--json").stdout)
    assert found["change"]["run_noise_is_measured"]
    assert len(found["baselines"]) == 3


def test_the_margin_and_the_noise_can_be_set(runs: tuple[Path, Path]) -> None:
    assert "equivalent: " in compare(*runs, "--margin", "20%").stdout
    assert "inconclusive: " in compare(*runs, "--run-noise", "0.3").stdout


def test_files_have_the_format_of_their_suffix(tmp_path: Path, runs: tuple[Path, Path]) -> None:
    files = [tmp_path / name for name in ("c.json", "c.md", "c.txt")]
    result = compare(*runs, *(argument for file in files for argument in ("-o", file)))
    assert (result.exit_code, result.stdout) == (0, "")
    assert json.loads(files[0].read_text())["change"]["verdict"] == "slower"
    assert files[1].read_text().startswith("### slower: ")
    assert files[2].read_text().startswith("baseline   10 steps")
    assert compare(*runs, "-o", files[0]).exit_code == 3
    assert compare(*runs, "-o", files[0], "--force").exit_code == 0


def test_a_selection_of_steps_holds_for_all_runs(runs: tuple[Path, Path]) -> None:
    found = json.loads(compare(*runs, "--steps", "2:6", "--json").stdout)
    assert [side["steps"] for side in (*found["baselines"], found["candidate"])] == [4, 4]


def test_runs_of_other_jobs_are_refused(tmp_path: Path, runs: tuple[Path, Path]) -> None:
    other = write_run(tmp_path / "other", STEADY, ranks=3)
    result = compare(runs[0], other)
    assert (result.exit_code, result.stdout) == (3, "")
    assert "these runs cannot be compared: the number of ranks differs: 2 in" in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["only-one"], 2, "one run alone cannot be compared"),
        (["none", "none"], 3, "none"),
        (["a", "b", "-o", "x.pdf"], 2, "the name does not end in .html, .json, .md, .txt"),
        (["a", "b", "--margin", "3"], 2, "'3' is not a share between 0 and 1"),
        (["a", "b", "--run-noise", "much"], 2, "'much' is not a share"),
    ],
)
def test_failures_are_one_line(arguments: list[str], code: int, message: str) -> None:
    result = compare(*arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
