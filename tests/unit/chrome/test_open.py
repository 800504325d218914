"""`tracekit open` of a run that was merged to Chrome's format."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.places import DATA
from tests.unit.cli.opening import Browser, arguments_of, open_, watched_browser
from tracekit.cli import cli

DDP = DATA / "ddp_slow_rank"


@pytest.fixture
def browser(monkeypatch: pytest.MonkeyPatch) -> Browser:
    return watched_browser(monkeypatch)


@pytest.mark.parametrize("name", ["run.json", "run.json.gz"])
def test_a_merged_trace_in_chromes_format_opens_as_its_run_does(browser: Browser, tmp_path: Path, name: str) -> None:
    """GIVEN the JSON that a run was merged to THEN it opens with the same tracks pinned, at the same step, by the time
    of the file, which counts from a base."""
    path = tmp_path / name
    assert CliRunner().invoke(cli, ["merge", str(DDP), "--format", "chrome", "-o", str(path)]).exit_code == 0
    assert open_(DDP).exit_code == 0
    assert open_(path).exit_code == 0
    assert browser.got == path.read_bytes()
    of_run, of_file = (arguments_of(url)[1] for url in browser.opened)
    assert of_file["startupCommands"] == of_run["startupCommands"]
    content = gzip.decompress(path.read_bytes()) if name.endswith(".gz") else path.read_bytes()
    base_ns = json.loads(content)["baseTimeNanoseconds"]
    assert [int(of_file[edge]) + base_ns for edge in ("visStart", "visEnd")] == [
        int(of_run[edge]) for edge in ("visStart", "visEnd")
    ]
    refused = CliRunner().invoke(cli, ["analyze", str(path)])
    assert refused.exit_code == 3
    assert "a merged trace, which tracekit wrote" in refused.stderr
