"""`tracekit optables`: what it prints and writes, and how it fails."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner, Result

from tests.unit.optables.simulated import simulate, written
from tests.unit.optables.straggler_tables import TWO_STAGES, operations
from tracekit.cli import cli


def optables(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["optables", *map(str, arguments)], prog_name="tracekit")


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
    result = optables(table)
    assert result.exit_code == 0, result.stderr
    assert "A step takes 90.00 ms; replayed 90.00 ms (+0.0%)" in result.stdout
    assert "stage 1" in optables(table, "--full").stdout
    assert max(len(line) for line in result.stdout.splitlines()[1:]) <= 80


def test_json_has_the_documented_fields(table: Path, tmp_path: Path) -> None:
    result = optables(table, "--json")
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
    optables(table, "-o", tmp_path / "w.json")
    assert (tmp_path / "w.json").read_text() == result.stdout


def test_steps_are_selected(table: Path) -> None:
    found = json.loads(optables(table, "--json", "--steps", "1:2").stdout)["whatif"]
    assert (found["steps"], found["measured_step_ns"]) == (1, 100_000_000)
    missed = optables(table, "--steps", "7")
    assert (missed.exit_code, missed.stdout) == (3, "")
    assert "recorded steps: 0-1" in missed.stderr


def test_a_plain_table(tmp_path: Path) -> None:
    path = written(simulate(longer_ns={(2, 2, "F", 4): 60_000_000}), tmp_path)
    result = optables(path)
    assert result.exit_code == 0, result.stderr
    assert "1 operation of rank 2 lasts 60" in result.stdout
    assert len(result.stdout.splitlines()) <= 24
    assert "Critical path by step" in optables(path, "--full").stdout
    (outlier,) = json.loads(optables(path, "--json").stdout)["outliers"]
    assert (outlier["step"], outlier["rank"], outlier["microbatch"]) == (2, 2, 4)
    assert json.loads(optables(path, "--json", "--steps", "0:2").stdout)["outliers"] == []


def test_the_unit_of_times_is_an_option(tmp_path: Path) -> None:
    path = written(simulate(steps=2).rename(columns={"start_ns": "start", "end_ns": "end"}), tmp_path)
    assert "times are taken as seconds" in optables(path).stdout
    in_ns = json.loads(optables(path, "--json", "--time-unit", "ns").stdout)
    assert in_ns["whatif"]["measured_step_ns"] < 1e9
    assert not any("seconds" in note for note in in_ns["notes"])


def test_an_error_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "ops.csv").write_text("rank,kind,microbatch,start_ms,end_ms\n0,F,0,0,1\n0,G,0,1,2\n")
    result = optables(tmp_path / "ops.csv")
    assert (result.exit_code, result.stdout) == (3, "")
    assert "line 3, column kind: 'G' is no kind" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_results_are_written(table: Path, tmp_path: Path) -> None:
    assert "S_by_stage" in json.loads(optables(table, "--json").stdout)["whatif"]
    optables(table, "-o", tmp_path / "w.txt")
    assert (tmp_path / "w.txt").read_text() == optables(table).stdout
    refused = optables(tmp_path / "none.csv")
    assert (refused.exit_code, refused.stdout) == (3, "")
    assert "none.csv: it cannot be read" in refused.stderr
    assert optables(table, "-o", tmp_path / "w.html").exit_code == 2
