"""`tracekit whatif`: what it prints and writes, and how it fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.builders import TraceBuilder
from tracekit.cli import cli


def whatif(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["whatif", *map(str, arguments)], prog_name="tracekit")


def test_a_recorded_run(tmp_path: Path) -> None:
    for rank, compute_us in enumerate((100, 140)):
        trace = TraceBuilder(rank=rank)
        for k in range(2):
            trace.step(k, k * 200, 200).op("aten::mm", k * 200, compute_us)
            trace.gloo("all_reduce", k * 200 + compute_us, 160 - compute_us, issued_at=k * 200 + compute_us)
            trace.wait(k * 200 + compute_us + 1, 160 - compute_us - 1).op("aten::add_", k * 200 + 160, 40)
        trace.capture(clock=[(0, 0, 100)])
        trace.write_capture(tmp_path)
    result = whatif(tmp_path)
    assert result.exit_code == 0, result.stderr
    assert "rank 1 at its peers' median 0.04" in " ".join(result.stdout.split())
    found = json.loads(whatif(tmp_path, "--json").stdout)
    section = found["whatif"]
    assert section["S"] == section["replayed_step_ns"] / section["ideal_step_ns"]
    assert set(section) >= {"S", "replay_error", "S_by_rank", "S_by_type", "S_by_stage", "M_W", "M_S", "fix"}
    assert all({"what", "saves_ns_per_step", "error_ns"} <= set(fix) for fix in section["fix"])
    whatif(tmp_path, "-o", tmp_path / "w.json")
    assert json.loads((tmp_path / "w.json").read_text()) == found


def test_a_table_is_no_trace(tmp_path: Path) -> None:
    (tmp_path / "ops.csv").write_text("rank,kind\n")
    result = whatif(tmp_path / "ops.csv")
    assert (result.exit_code, result.stdout) == (3, "")
    assert "ops.csv: not a trace" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["none"], 3, "none"),
        (["a.csv", "-o", "x.html"], 2, "the name does not end in .json, .txt"),
        (["a.csv", "--json", "-o", "x.txt"], 2, "the name does not end in .json"),
    ],
)
def test_failures_are_one_line(arguments: list[str], code: int, message: str) -> None:
    result = whatif(*arguments)
    assert result.exit_code == code
    assert message in result.stderr
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
