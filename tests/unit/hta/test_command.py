"""`tracekit hta`: tables on the terminal, as CSV and as JSON; errors in one line."""

from __future__ import annotations

import csv
import importlib.util
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.builders import write_run
from tests.components import require_module
from tests.gpu_steps import gpu_steps
from tests.unit.hta.hta_itself import HAS_PANDAS_3
from tracekit.cli import cli

pytestmark = pytest.mark.filterwarnings("ignore")
require_module("hta")


def hta(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["hta", *map(str, arguments)], env={"COLUMNS": "120"})


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", [gpu_steps(0), gpu_steps(1)])


def test_a_table_is_printed(run: Path) -> None:
    result = hta(run, "overlap")
    assert result.exit_code == 0, result.output
    title, _, head, _, *rows, _, count = result.stdout.rstrip().splitlines()
    assert (title, head.split(), count) == ("overlap: overlap", ["rank", "comp_comm_overlap_pctg"], "2 rows")
    assert [row.split()[0] for row in rows] == ["0", "1"]


def test_ranks_and_conventions_are_chosen(run: Path) -> None:
    shorter, longer = (
        json.loads(hta(run, "temporal-breakdown", "--json", "--ranks", "1", *more).stdout)["analyses"]
        for more in ((), ("--last-step", "--nanoseconds"))
    )
    times = [each["temporal-breakdown"]["tables"]["times"] for each in (shorter, longer)]
    assert [row["rank"] for row in times[0]] == [1]
    assert times[0][0]["kernel_time(us)"] < times[1][0]["kernel_time(us)"]


@pytest.mark.skipif(not HAS_PANDAS_3, reason="HTA's critical path works on pandas 2")
def test_all_goes_on_after_an_error_of_hta(run: Path) -> None:
    """GIVEN pandas 3, on which HTA's critical path fails WHEN all analyses are asked THEN the others are shown."""
    result = hta(run, "all")
    assert result.exit_code == 0, result.output
    assert "critical-path: HTA fails with ValueError: Cannot specify both" in result.stdout
    assert "counters: HTA has no result (Could not find events of 'cuda_profiler_range'" in result.stdout
    assert "trace-diff: differences" in result.stdout


@pytest.mark.skipif(not HAS_PANDAS_3, reason="HTA's critical path works on pandas 2")
def test_one_analysis_that_fails_is_an_error(run: Path) -> None:
    result = hta(run, "critical-path")
    assert result.exit_code == 3
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: critical-path: HTA fails with ValueError: Cannot specify both")


def test_one_table_is_one_csv_file(run: Path, tmp_path: Path) -> None:
    result = hta(run, "launch-statistics", "-o", tmp_path / "launches.csv")
    assert result.exit_code == 0, result.output
    head, *rows = csv.reader((tmp_path / "launches.csv").open())
    assert head == ["rank", "correlation", "cpu_duration", "gpu_duration", "launch_delay"]
    assert {row[0] for row in rows} == {"0", "1"}


def test_several_tables_are_several_csv_files(run: Path, tmp_path: Path) -> None:
    result = hta(run, "idle-time", "-o", tmp_path / "out.csv")
    assert result.exit_code == 0, result.output
    expected = ["out-idle-time-idle-intervals.csv", "out-idle-time-idle-time.csv"]
    assert sorted(path.name for path in tmp_path.glob("out*")) == expected


def test_json_has_tables_and_errors(run: Path, tmp_path: Path) -> None:
    result = hta(run, "all", "-o", tmp_path / "all.json")
    assert result.exit_code == 0, result.output
    analyses = json.loads((tmp_path / "all.json").read_text())["analyses"]
    assert (analyses["critical-path"]["error"] or "").startswith("ValueError") == HAS_PANDAS_3
    assert {row["rank"] for row in analyses["queue-length"]["tables"]["queue length"]} == {0, 1}
    assert analyses["kernel-breakdown"]["tables"]["kernels"][0]["name"].startswith("ncclDevKernel_AllReduce")


def test_another_run_can_be_compared(run: Path, tmp_path: Path) -> None:
    other = gpu_steps().op("aten::extra", 15, 3).write(tmp_path / "other.json")
    result = hta(run, "trace-diff", "--against", other, "--json")
    rows = json.loads(result.stdout)["analyses"]["trace-diff"]["tables"]["differences"]
    assert [row["diff_counts"] for row in rows if row["name"] == "aten::extra"] == [1]


@pytest.mark.parametrize("arguments", [["no-such-analysis"], ["overlap", "-o", "file.xml"]])
def test_wrong_usage_is_one_line(run: Path, arguments: list[str]) -> None:
    result = hta(run, *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert len(result.stderr.splitlines()) == 1


def test_a_missing_package_is_one_line(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    result = hta(run, "overlap")
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert "pip install 'torch-tracekit[hta]'" in line
