"""Which paths are tables of operations, and that each form is read as one."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner, Result

from tests.builders import TraceBuilder
from tests.unit.analysis.operation_tables.simulated import simulate, written
from tracekit.cli import cli
from tracekit.cli.inputs.operation_table import is_operation_table


def whatif(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["whatif", *map(str, arguments)], prog_name="tracekit")


def test_a_plain_table(tmp_path: Path) -> None:
    path = written(simulate(longer_ns={(2, 2, "F", 4): 60_000_000}), tmp_path)
    result = whatif(path)
    assert result.exit_code == 0, result.stderr
    assert "1 operation of rank 2 lasts 60" in result.stdout
    assert len(result.stdout.splitlines()) <= 24
    assert "Critical path by step" in whatif(path, "--full").stdout
    (outlier,) = json.loads(whatif(path, "--json").stdout)["outliers"]
    assert (outlier["step"], outlier["rank"], outlier["microbatch"]) == (2, 2, 4)
    assert json.loads(whatif(path, "--json", "--steps", "0:2").stdout)["outliers"] == []


def test_gzipped_and_tab_separated_tables_and_parquet_are_the_same(tmp_path: Path) -> None:
    table = simulate(steps=2)
    expected = json.loads(whatif(written(table, tmp_path), "--json").stdout)
    table.to_csv(tmp_path / "ops.csv.gz", index=False)
    table.to_csv(tmp_path / "ops.tsv", index=False, sep="\t")
    for name in ("ops.csv.gz", "ops.tsv"):
        result = whatif(tmp_path / name, "--json")
        assert result.exit_code == 0, result.stderr
        assert {**json.loads(result.stdout), "path": ""} == {**expected, "path": ""}


def test_the_unit_of_times_is_an_option(tmp_path: Path) -> None:
    path = written(simulate(steps=2).rename(columns={"start_ns": "start", "end_ns": "end"}), tmp_path)
    assert "times are taken as seconds" in whatif(path).stdout
    in_ns = json.loads(whatif(path, "--json", "--time-unit", "ns").stdout)
    assert in_ns["whatif"]["measured_step_ns"] < 1e9
    assert not any("seconds" in note for note in in_ns["notes"])


def test_an_error_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "ops.csv").write_text("rank,kind,microbatch,start_ms,end_ms\n0,F,0,0,1\n0,G,0,1,2\n")
    result = whatif(tmp_path / "ops.csv")
    assert (result.exit_code, result.stdout) == (3, "")
    assert "line 3: unknown kind 'G'" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_runs_and_other_files_are_no_tables(tmp_path: Path) -> None:
    TraceBuilder(rank=0).step(0, 0, 10).capture().write_capture(tmp_path)
    assert not any(is_operation_table(str(path)) for path in (tmp_path, *tmp_path.iterdir()))
    assert not is_operation_table("s3://bucket/run")
