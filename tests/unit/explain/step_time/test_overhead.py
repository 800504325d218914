"""What recording cost: the rank with the highest cost, the warning where it distorts times, JSON and the terminal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.builders import TraceBuilder
from tracekit.explain.step_time.breakdown import capture_overhead
from tracekit.findings.finding import Finding
from tracekit.loading.load import load
from tracekit.model.metadata import Overhead
from tracekit.render.json_result import result_dict
from tracekit.render.terminal import terminal_text
from tracekit.report.report import Report, analyze


def report(
    folder: Path, *costs_ns: int | None, options: tuple[str, ...] = ("record_shapes",), busy_us: int = 80
) -> Report:
    """Return the report on ranks whose steps take 100 us, of which recording took `costs_ns` of the host."""
    for rank, cost_ns in enumerate(costs_ns):
        trace = TraceBuilder(rank, len(costs_ns))
        for step in range(3):
            trace.step(step, 100 * step, 100).kernel("gemm", 100 * step, busy_us, launched_at=100 * step)
        trace.capture()
        cost = Overhead(per_step_ns=cost_ns, stop_ns=None, export_ns=None, clock_ns=None, options=list(options))
        assert trace.metadata is not None
        trace.metadata = replace(trace.metadata, overhead=cost)
        trace.write_capture(folder)
    return analyze(load(folder))


def warnings(result: Report) -> list[Finding]:
    return [finding for finding in result.findings if finding.cause == "recording"]


def test_the_highest_cost_counts(tmp_path: Path) -> None:
    result = report(tmp_path, 1000, 4000, None, 2000)
    cost = capture_overhead(result.run)
    assert cost is not None
    assert (cost.rank, cost.per_step_ns, cost.ratio, cost.options) == (1, 4000, 0.04, ("record_shapes",))
    run = result_dict(result)["run"]
    assert (run["capture_overhead_ns"], run["capture_overhead_ratio"]) == (4000, 0.04)
    assert warnings(result) == []


def test_a_cost_that_was_not_measured_is_unknown(tmp_path: Path) -> None:
    result = report(tmp_path, None, None)
    run = result_dict(result)["run"]
    assert (run["capture_overhead_ns"], run["capture_overhead_ratio"]) == (None, None)
    assert "what recording cost was not measured" in terminal_text(result)


@pytest.mark.parametrize(("cost_ns", "warned"), [(9_900, 0), (10_100, 1)])
def test_a_tenth_is_the_limit(tmp_path: Path, cost_ns: int, warned: int) -> None:
    assert len(warnings(report(tmp_path, cost_ns))) == warned


@pytest.mark.parametrize(("busy_us", "cost_ns"), [(100, 0), (95, 5_000), (80, 12_000)])
def test_what_recording_takes_of_the_host_costs_a_step_no_more_than_its_device_idled(
    tmp_path: Path, busy_us: int, cost_ns: int
) -> None:
    result = report(tmp_path, 12_000, busy_us=busy_us)
    cost = capture_overhead(result.run)
    assert cost is not None
    assert (cost.per_step_ns, cost.ratio) == (cost_ns, cost_ns / 100_000)
    assert len(warnings(result)) == (cost_ns >= 10_000)


def test_what_recording_takes_of_idle_time_nothing_else_saves(tmp_path: Path) -> None:
    """GIVEN a device that idles 60 us of 100, and recording that costs 25 THEN mending the rest saves 35 at most."""
    findings = {finding.id: finding for finding in report(tmp_path, 25_000, busy_us=40).findings}
    assert findings["recording-overhead"].time_ns == 25_000
    others = [finding for finding in findings.values() if finding.id != "recording-overhead"]
    assert [finding.time_ns for finding in others] == [35_000]
    assert max(finding.saving_ns or 0 for finding in others) <= 35_000


def test_the_terminal_shows_the_cost_of_a_step(tmp_path: Path) -> None:
    assert "recording cost about 0.00 ms a step (1.2%)" in terminal_text(report(tmp_path / "one", 1200))
    text = terminal_text(report(tmp_path / "two", 1000, 9000))
    assert "recording cost about 0.01 ms a step (9.0%), most on rank 1" in text


def test_traces_of_other_tools_have_no_cost(tmp_path: Path) -> None:
    trace = TraceBuilder(0, 1).step(0, 0, 100).kernel("gemm", 0, 95, launched_at=0)
    trace.write(tmp_path / "rank0.json")
    assert "recording cost" not in terminal_text(analyze(load(tmp_path)))
