"""`tracekit links` before and after the measurement: what it refuses, and what it writes. The measurement itself is
replaced; tests/integration/test_links.py runs it.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from tracekit.checks.link_timing import KINDS, Effort
from tracekit.cli import cli
from tracekit.model.links import LINKS_VERSION, LinkGroup, LinkHost, LinkMeasurements, LinkRow
from tracekit.model.metadata import Device

ROW = LinkRow(
    group=0, kind="all_reduce", size_bytes=4096, repeats=1, time_ns=2000, min_ns=1000, algbw_bps=2e9, busbw_bps=2e9
)
MEASURED = LinkMeasurements(
    version=LINKS_VERSION,
    tracekit="0",
    torch="2",
    world_size=2,
    backend="gloo",
    device=Device(type="cpu", index=0, name="a CPU"),
    hosts=[LinkHost(host="one", host_id="1", ranks=[0, 1])],
    groups=[LinkGroup(id=0, link="host", ranks=[0, 1])],
    rows=[ROW],
    left_out=[],
)


@pytest.fixture
def efforts(monkeypatch: pytest.MonkeyPatch) -> list[tuple[tuple[str, ...], Effort]]:
    """What was measured, in a job whose rank 0 this process is."""
    asked: list[tuple[tuple[str, ...], Effort]] = []

    def measure_job(*, kinds: tuple[str, ...], effort: Effort) -> LinkMeasurements:
        asked.append((kinds, effort))
        return MEASURED

    module = __import__("tracekit.cli.links", fromlist=["links"])
    monkeypatch.setattr(module, "measure_job", measure_job)
    monkeypatch.setattr(module, "find_spec", lambda name: object())
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    return asked


def test_defaults_are_all_collectives_and_the_usual_effort(efforts: list[tuple[tuple[str, ...], Effort]]) -> None:
    result = CliRunner().invoke(cli, ["links"])
    assert (result.exit_code, result.stderr) == (0, "")
    assert efforts == [(KINDS, Effort())]
    assert result.stdout.splitlines()[0] == "2 ranks on 1 host(s), gloo, a CPU"
    assert result.stdout.splitlines()[-1].split() == ["all_reduce", "4,096", "2.0", "2.000", "2.000"]


def test_the_file_holds_what_was_measured(efforts: list[tuple[tuple[str, ...], Effort]], tmp_path: Path) -> None:
    file = tmp_path / "links.json"
    result = CliRunner().invoke(cli, ["links", "-o", str(file), "--kinds", "all_reduce", "--repeats", "3"])
    assert (result.exit_code, result.stderr) == (0, f"wrote {file}\n")
    assert msgspec.json.decode(file.read_bytes(), type=LinkMeasurements) == MEASURED
    assert efforts == [(("all_reduce",), Effort(repeats=3))]


def test_a_file_that_exists_is_refused_before_anything_is_measured(
    efforts: list[tuple[tuple[str, ...], Effort]], tmp_path: Path
) -> None:
    file = tmp_path / "links.json"
    file.write_text("kept")
    result = CliRunner().invoke(cli, ["links", "-o", str(file)])
    assert result.exit_code == 3
    assert "--force" in result.stderr
    assert file.read_text() == "kept"
    assert efforts == []
    assert CliRunner().invoke(cli, ["links", "-o", str(file), "--force"]).exit_code == 0
    assert msgspec.json.decode(file.read_bytes(), type=LinkMeasurements) == MEASURED


def test_outside_a_job_it_says_how_to_start_one(
    efforts: list[tuple[tuple[str, ...], Effort]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RANK")
    result = CliRunner().invoke(cli, ["links"])
    assert result.exit_code == 2
    assert result.stderr.rstrip().endswith("torchrun --nproc-per-node 2 -m tracekit links -o links.json")
    assert efforts == []


def test_without_torch_it_says_how_to_get_it(
    efforts: list[tuple[tuple[str, ...], Effort]], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = __import__("tracekit.cli.links", fromlist=["links"])
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    result = CliRunner().invoke(cli, ["links"])
    assert result.exit_code == 3
    assert result.stderr.rstrip().endswith("pip install 'torch-tracekit[torch]'")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--kinds", "all_reduce,all_lost"], "no collective all_lost"),
        (["--min-bytes", "3"], "3 is not in the range x>=4"),
        (["--min-bytes", "8192", "--max-bytes", "4096"], "--max-bytes 4096 is below --min-bytes 8192"),
        (["--repeats", "0"], "0 is not in the range x>=1"),
    ],
)
def test_efforts_that_make_no_sense_are_refused(
    efforts: list[tuple[tuple[str, ...], Effort]], arguments: list[str], reason: str
) -> None:
    result = CliRunner().invoke(cli, ["links", *arguments])
    assert result.exit_code == 2
    assert reason in result.stderr
    assert efforts == []
