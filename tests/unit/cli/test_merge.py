"""`tracekit merge`: its formats, its filters, and what it prints about slices that are left out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import Result

from tests.builders import TraceBuilder, write_run
from tests.unit.cli.merging import merge, run_to_merge, without_unicode
from tracekit.render.merged.formats import FORMATS


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return run_to_merge(tmp_path / "run")


def slices_on_page(result: Result) -> int:
    return int(result.stdout.split(", ")[1].split(" slices")[0].replace(",", ""))


@pytest.mark.parametrize("form", FORMATS)
def test_paths_need_not_be_unicode(run: Path, tmp_path: Path, form: str) -> None:
    """GIVEN a folder and files whose names are bytes that are no UTF-8 THEN each format is written."""
    folder = without_unicode(run)
    result = merge(folder, "--format", form, "-o", tmp_path / FORMATS[form].default_name)
    assert result.exit_code == 0, result.stderr


def test_all_slices_by_default(run: Path, tmp_path: Path) -> None:
    result = merge(run, "-o", tmp_path / "run.pftrace")
    assert result.exit_code == 0, result.stderr
    assert slices_on_page(result) == 2 * 3 * 3  # a step, a launch and a kernel
    assert f"Next: tracekit open {tmp_path / 'run.pftrace'}" in result.stdout


@pytest.mark.parametrize(
    ("options", "slices", "expected"),
    [
        (["--categories", "kernel"], 6, "12 by --categories"),
        (["--min-dur", "60us"], 6, "12 by --min-dur"),
        (["--min-dur", "0.06ms"], 6, "12 by --min-dur"),
        (["--steps", "1"], 6, "12 by --steps"),
        (["--steps", "recording"], 18, "slices left out: none"),
        (["--ranks", "1"], 9, "run.pftrace: 1 rank, 9 slices"),
    ],
)
def test_the_output_says_what_an_option_leaves_out(
    run: Path, tmp_path: Path, options: list[str], slices: int, expected: str
) -> None:
    result = merge(run, "-o", tmp_path / "run.pftrace", *options)
    assert result.exit_code == 0, result.stderr
    assert slices_on_page(result) == slices
    assert expected in result.stdout


def test_an_unknown_category_is_named_with_the_known_ones(run: Path, tmp_path: Path) -> None:
    result = merge(run, "-o", tmp_path / "run.pftrace", "--categories", "kernle,kernel")
    assert (result.exit_code, slices_on_page(result)) == (0, 6)
    there = "there are cuda_runtime, kernel, user_annotation"
    assert result.stderr == f"--categories: no event is of kernle; {there}\n"


@pytest.mark.parametrize("name", ["run.pftrace", "run.pftrace.gz"])
def test_the_same_run_gives_the_same_bytes(run: Path, tmp_path: Path, name: str) -> None:
    contents = set()
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
        assert merge(run, "-o", tmp_path / folder / name).exit_code == 0
        contents.add((tmp_path / folder / name).read_bytes())
    assert len(contents) == 1


@pytest.mark.parametrize("name", ["run.pftrace", "run.pftrace.gz"])
def test_only_unknown_categories_are_an_error(run: Path, tmp_path: Path, name: str) -> None:
    """THEN nothing is written, and an existing file is unchanged."""
    (tmp_path / name).write_text("mine")
    result = merge(run, "-o", tmp_path / name, "--force", "--categories", "kernle,krenel")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        "Error: --categories kernle,krenel: no event is of that category. "
        "Hint: there are cuda_runtime, kernel, user_annotation\n"
    )
    assert (tmp_path / name).read_text() == "mine"
    assert {path.name for path in tmp_path.iterdir()} == {"run", name}


def test_the_output_counts_events_that_cannot_be_shown(tmp_path: Path) -> None:
    trace = TraceBuilder(0, 1).step(0, 0, 100).op("aten::mm", 20, 30)
    for phase, count in (("i", 2), ("C", 1), ("s", 1), ("f", 1)):
        for number in range(count):
            trace.raw(ph=phase, name="x", cat="x", pid=1, tid=1, ts=trace.ts(number), id=1, args={"x": 1})
    result = merge(write_run(tmp_path / "in", [trace]), "-o", tmp_path / "run.pftrace")
    assert result.stdout.splitlines()[1:3] == [
        "slices left out: none; names and arrows are written anew",
        "not shown: 2 instants",
    ]


def test_a_missing_run_is_named(run: Path, tmp_path: Path) -> None:
    trace = TraceBuilder(0, 1).step(0, 0, 100).op("aten::mm", 20, 30).capture(run_id="first")
    trace.write_capture(tmp_path / "runs")
    for options, said in ((["--run", "nosuch"], "--run nosuch"), (["--attempt", "3"], "--attempt 3")):
        result = merge(tmp_path / "runs", "-o", tmp_path / "run.pftrace", *options)
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr == (
            f"Error: {said}: no such run in {tmp_path / 'runs'}. Hint: there is first (attempt 0)\n"
        )


def test_notes_about_the_run_fit_the_terminal(run: Path, tmp_path: Path) -> None:
    """GIVEN a rank whose file is cut off THEN its long note is wrapped at 80 columns after its mark."""
    whole = next(iter(sorted(run.rglob("*.json*"))))
    whole.write_bytes(whole.read_bytes()[:-200])
    result = merge(run, "-o", tmp_path / "run.pftrace")
    assert result.exit_code == 0
    first, second, *_ = result.stderr.splitlines()
    assert first.startswith("x rank 0: rank0.json.gz: no events in it")
    assert second.startswith("  ")
    assert max(map(len, result.stderr.splitlines())) <= 80


@pytest.mark.parametrize("wrong", ["5", "5 parsecs", "-1us", "us"])
def test_a_duration_needs_a_unit(run: Path, wrong: str) -> None:
    result = merge(run, "--min-dur", wrong)
    assert result.exit_code == 2
    assert "such as 10us" in result.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["-o", "run.json"], "end it in .pftrace or .pftrace.gz"),
        (["-o", "run"], "end it in .pftrace or .pftrace.gz"),
        (["-o", "."], "-o .: a folder. Hint: name the file, too: -o run.pftrace"),
    ],
)
def test_contradicting_options_are_refused_in_one_line(run: Path, options: list[str], said: str) -> None:
    result = merge(run, *options)
    assert result.exit_code == 2
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_runs_that_are_left_out_are_named(tmp_path: Path) -> None:
    for number in (1, 2):
        begin = 1000 * number
        trace = TraceBuilder(0, 1).step(0, begin, 100).kernel("gemm", begin + 10, 50, launched_at=begin + 1)
        trace.capture(run_id=f"run-{number}").write_capture(tmp_path / "runs")
    result = merge(tmp_path / "runs", "-o", tmp_path / "run.pftrace")
    assert result.exit_code == 0, result.stderr
    expected = " ".join(result.stderr.split())
    assert re.fullmatch(r"· left out: run run-., attempt 0, of 1 rank; --run and --attempt choose", expected)


def test_an_existing_file_is_refused_before_the_run_is_read(run: Path, tmp_path: Path) -> None:
    output = tmp_path / "run.pftrace"
    output.write_text("mine")
    result = merge(run / "missing", "-o", output)
    assert "exists already" in result.stderr
    assert output.read_text() == "mine"
