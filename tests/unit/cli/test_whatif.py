"""`tracekit whatif`: what it prints and writes, and how it fails."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner, Result

from tests.builders import TraceBuilder
from tests.unit.analysis.operation_tables.operations import TWO_STAGES, operations
from tracekit.cli import cli


def whatif(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["whatif", *map(str, arguments)], prog_name="tracekit")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Two steps of two stages. In the second step stage 1 computes longer, and everything after it is later."""
    slow = operations(TWO_STAGES, step=1)
    late = slow["start_ts"] >= 0.012
    forward = (slow["optype"] == "forward-compute") & (slow["stage"] == 1)
    slow.loc[late & ~forward, "start_ts"] += 0.020
    waiting = (slow["optype"] == "backward-recv") | forward
    slow.loc[waiting, "duration"] += 0.020
    path = tmp_path / "ops.csv"
    pd.concat([operations(TWO_STAGES, step=0), slow]).to_csv(path, index=False)
    return path


def test_a_table_of_operations(table: Path) -> None:
    result = whatif(table)
    assert result.exit_code == 0, result.stderr
    assert "A step takes 90.00 ms; replayed 90.00 ms (+0.0%)" in result.stdout
    assert "stage 1" in whatif(table, "--full").stdout
    assert max(len(line) for line in result.stdout.splitlines()[1:]) <= 80


def test_json_has_the_documented_fields(table: Path, tmp_path: Path) -> None:
    result = whatif(table, "--json")
    found = json.loads(result.stdout)
    assert found["schema_version"] == 1
    section = found["whatif"]
    # Forwards take 10, 10, 11 and 31 ms. Ideally each takes their mean, 15.5 ms: 10 + 21 on the path become 31.
    # Optimizers take 10, 10, 7 and 7 ms, ideally 8.5. Transfers take their medians: 2 ms for the send and 2 ms for the
    # receive; the others keep their 3 and 2 ms.
    assert (
        section["ideal_step_ns"]
        == 15_500_000 * 2 + 2_000_000 + 40_000_000 + 2_000_000 + 3_000_000 + 2_000_000 + 8_500_000
    )
    assert section["S"] == section["replayed_step_ns"] / section["ideal_step_ns"]
    assert set(section) >= {"S", "replay_error", "S_by_rank", "S_by_type", "S_by_stage", "M_W", "M_S", "fix"}
    assert set(section["S_by_stage"]) == {"0", "1"}
    assert all({"what", "saves_ns_per_step", "error_ns"} <= set(fix) for fix in section["fix"])
    whatif(table, "-o", tmp_path / "w.json")
    assert (tmp_path / "w.json").read_text() == result.stdout


def test_steps_are_selected(table: Path) -> None:
    found = json.loads(whatif(table, "--json", "--steps", "1:2").stdout)["whatif"]
    assert (found["steps"], found["measured_step_ns"]) == (1, 100_000_000)
    missed = whatif(table, "--steps", "7")
    assert (missed.exit_code, missed.stdout) == (3, "")
    assert "recorded steps: 0-1" in missed.stderr


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
    assert "rank 1 at its peers' median -0.04" in " ".join(result.stdout.split())


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["none.parquet"], 3, "none.parquet: no such file"),
        (["none"], 3, "none"),
        (["a.csv", "b.csv"], 2, "a table of operations is analysed alone and whole"),
        (["a.csv", "--ranks", "0"], 2, "a table of operations is analysed alone and whole"),
        (["a.csv", "-o", "x.html"], 2, "the name does not end in .json or .txt"),
        (["a.csv", "--json", "-o", "x.txt"], 2, "the name does not end in .json"),
    ],
)
def test_failures_are_one_line(arguments: list[str], code: int, message: str) -> None:
    result = whatif(*arguments)
    assert result.exit_code == code
    assert message in result.stderr
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
