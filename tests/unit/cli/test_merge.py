"""`tracekit merge`: which format, which slices, and what is said of the rest."""

from __future__ import annotations

import gzip
import json
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.builders import TraceBuilder, write_run
from tracekit.cli import cli


@pytest.fixture
def run(tmp_path: Path) -> Path:
    ranks = []
    for rank in (0, 1):
        trace = TraceBuilder(rank)
        for k in range(3):
            trace.step(k, 100 * k, 100).kernel("gemm", 100 * k, 50, launched_at=100 * k)
        ranks.append(trace)
    return write_run(tmp_path / "run", ranks)


def merge(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["merge", *map(str, arguments)])


def slices_on_page(result: Result) -> int:
    return int(result.stdout.split(" ranks, ")[1].split(" slices")[0].replace(",", ""))


def test_all_slices_by_default(run: Path, tmp_path: Path) -> None:
    result = merge(run, "-o", tmp_path / "run.pftrace")
    assert result.exit_code == 0, result.stderr
    assert slices_on_page(result) == 2 * 3 * 3  # a step, a launch and a kernel
    assert f"Next: tracekit open {tmp_path / 'run.pftrace'}" in result.stdout


@pytest.mark.parametrize(
    ("options", "slices", "told"),
    [
        (["--categories", "kernel"], 6, "12 by --categories"),
        (["--min-dur", "60us"], 6, "12 by --min-dur"),
        (["--min-dur", "0.06ms"], 6, "12 by --min-dur"),
        (["--steps", "1"], 6, "12 by --steps"),
        (["--steps", "recording"], 18, ""),
        (["--ranks", "1"], 9, ""),
    ],
)
def test_what_an_option_leaves_out_is_told(
    run: Path, tmp_path: Path, options: list[str], slices: int, told: str
) -> None:
    result = merge(run, "-o", tmp_path / "run.pftrace", *options)
    assert result.exit_code == 0, result.stderr
    assert slices_on_page(result) == slices
    assert told in result.stdout


def test_a_category_that_no_event_has_is_told_with_those_there_are(run: Path, tmp_path: Path) -> None:
    result = merge(run, "-o", tmp_path / "run.pftrace", "--categories", "kernle")
    assert slices_on_page(result) == 0
    assert result.stderr == "no event is of category kernle; there are cuda_runtime, kernel, user_annotation\n"


@pytest.mark.parametrize("wrong", ["5", "5 parsecs", "-1us", "us"])
def test_a_length_of_time_has_a_unit(run: Path, wrong: str) -> None:
    result = merge(run, "--min-dur", wrong)
    assert result.exit_code == 2
    assert "such as 10us" in result.stderr


def test_chrome_s_format_for_other_viewers(run: Path, tmp_path: Path) -> None:
    result = merge(run, "--format", "chrome", "-o", tmp_path / "run.json.gz")
    assert result.exit_code == 0, result.stderr
    document = json.loads(gzip.decompress((tmp_path / "run.json.gz").read_bytes()))
    shown = [event for event in document["traceEvents"] if event["ph"] == "X" and event["cat"] != "tracekit"]
    assert len(shown) == 18
    assert {event["name"] for event in shown if event["cat"] == "kernel"} == {"gemm"}


def test_the_untouched_files_with_a_manifest(run: Path, tmp_path: Path) -> None:
    result = merge(run, "--format", "manifest", "-o", tmp_path / "run.zip")
    assert result.exit_code == 0, result.stderr
    with zipfile.ZipFile(tmp_path / "run.zip") as archive:
        assert sorted(archive.namelist()) == ["perfetto_manifest.json", "rank-000000.json", "rank-000001.json"]
    assert "2 files with their offsets" in result.stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--format", "chrome", "-o", "run.pftrace"], "not a name for this format"),
        (["-o", "run.json"], "not a name for this format"),
        (["--format", "manifest", "--min-dur", "1us"], "leaves the files as they are"),
    ],
)
def test_what_does_not_go_together_is_refused_in_one_line(run: Path, options: list[str], said: str) -> None:
    result = merge(run, *options)
    assert result.exit_code == 2
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("form", ["chrome", "manifest"])
def test_a_file_of_the_run_itself_is_never_overwritten(run: Path, form: str) -> None:
    (first, *_) = sorted(path for path in run.rglob("*.json*"))
    if form == "manifest":
        first = first.rename(first.with_name("rank0.zip"))
        (run / "rank0.json.gz").symlink_to(first)
    before = first.read_bytes()
    result = merge(run, "--format", form, "-o", first, "--force")
    assert result.exit_code != 0
    assert "a file of the run itself" in result.stderr
    assert first.read_bytes() == before


def test_runs_that_are_left_out_are_told(tmp_path: Path) -> None:
    for number in (1, 2):
        trace = TraceBuilder(0, 1).step(0, 1000 * number, 100).kernel("gemm", 1000 * number, 50)
        trace.capture(run_id=f"run-{number}").write_capture(tmp_path / "runs")
    result = merge(tmp_path / "runs", "-o", tmp_path / "run.pftrace")
    assert result.exit_code == 0, result.stderr
    assert "left out: run run-" in result.stderr
    assert "--run and --attempt choose" in result.stderr


def test_a_file_that_is_there_is_refused_before_anything_is_read(run: Path, tmp_path: Path) -> None:
    output = tmp_path / "run.pftrace"
    output.write_text("mine")
    result = merge(run / "missing", "-o", output)
    assert "exists already" in result.stderr
    assert output.read_text() == "mine"
