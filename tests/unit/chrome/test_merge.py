"""`tracekit merge --format chrome`: what it writes, and which names it takes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.unit.cli.merging import merge, run_to_merge, without_unicode
from tracekit.render.palette import LOOKS


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return run_to_merge(tmp_path / "run")


def test_chrome_format(run: Path, tmp_path: Path) -> None:
    result = merge(run, "--format", "chrome", "-o", tmp_path / "run.json.gz")
    assert result.exit_code == 0, result.stderr
    document = json.loads(gzip.decompress((tmp_path / "run.json.gz").read_bytes()))
    shown = [event for event in document["traceEvents"] if event["ph"] == "X" and event["cat"] != "tracekit"]
    assert len(shown) == 18
    assert {event["name"] for event in shown if event["cat"] == "kernel"} == {"gemm"}
    assert not any("cname" in event for event in shown)
    added = {event["name"]: event.get("cname") for event in document["traceEvents"] if event.get("cat") == "tracekit"}
    assert added["compute"] == LOOKS["compute"].chrome_name
    assert added["step 0"] is None


def test_of_paths_that_are_not_unicode_it_is_utf_8(run: Path, tmp_path: Path) -> None:
    result = merge(without_unicode(run), "--format", "chrome", "-o", tmp_path / "run.json")
    assert result.exit_code == 0, result.stderr
    (tmp_path / "run.json").read_bytes().decode()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--format", "chrome", "-o", "run.pftrace"], "not a name for --format chrome"),
        (["-o", "run.json"], "end it in .pftrace or .pftrace.gz, or give --format chrome"),
    ],
)
def test_a_name_of_another_format_is_refused_in_one_line(run: Path, options: list[str], said: str) -> None:
    result = merge(run, *options)
    assert result.exit_code == 2
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_file_of_the_run_is_never_overwritten(run: Path) -> None:
    (first, *_) = sorted(path for path in run.rglob("*.json*"))
    before = first.read_bytes()
    result = merge(run, "--format", "chrome", "-o", first, "--force")
    assert result.exit_code != 0
    assert "a recording, which is not overwritten" in result.stderr
    assert first.read_bytes() == before
