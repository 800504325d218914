"""Launches that return only when their kernel has ended. Times are microseconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.builders import TraceBuilder, write_run
from tracekit.capture.job.process import launch_settings
from tracekit.findings.finding import Finding
from tracekit.report.report import Report, analyze


def a_rank(rank: int, *, blocks: bool, for_us: int = 200, call: str = "cudaLaunchKernel") -> TraceBuilder:
    """Four steps of ten kernels, and an all-reduce that takes a fifth of the step."""
    trace = TraceBuilder(rank, 2)
    for step in range(4):
        at = 4_000 * step
        trace.step(step, at, 4_000)
        for number in range(11):
            begin = at + 300 * number + 10
            if number < 10:
                trace.kernel("gemm", begin, for_us, launched_at=begin - 5, launched_by=call)
            else:
                trace.nccl("all_reduce", begin, 800, launched_at=begin - 5, elements=1_000_000, Seq=step)
            if blocks:
                trace.events[-2]["dur"] = 6 + (for_us if number < 10 else 800)
    return trace


def report_of(folder: Path, traces: Sequence[TraceBuilder]) -> Report:
    return analyze(write_run(folder, traces))


def of_blocking(report: Report) -> list[Finding]:
    return [finding for finding in report.findings if finding.id == "launches-that-block"]


@pytest.mark.parametrize("call", ["cudaLaunchKernel", "hipLaunchKernel"])
def test_launches_that_block_are_why_nothing_overlaps(tmp_path: Path, call: str) -> None:
    """THEN they are named first, and what they cause is no second finding."""
    report = report_of(tmp_path, [a_rank(rank, blocks=True, call=call) for rank in (0, 1)])
    (finding,) = of_blocking(report)
    assert report.findings[0] == finding
    assert (finding.evidence["behind_per_step"], finding.evidence["launches_per_step"]) == (11, 11)
    hip = ["HIP_LAUNCH_BLOCKING", "AMD_SERIALIZE_KERNEL"]
    assert finding.evidence["variables"] == (hip if call.startswith("hip") else ["CUDA_LAUNCH_BLOCKING"])
    assert finding.evidence["exposed_share"] == pytest.approx(0.2, abs=0.01)
    assert "exposed-transfers" not in [other.id for other in report.findings]


def test_a_rank_that_alone_blocks_is_named(tmp_path: Path) -> None:
    report = report_of(tmp_path, [a_rank(0, blocks=False), a_rank(1, blocks=True)])
    (finding,) = of_blocking(report)
    assert finding.ranks == (1,)


@pytest.mark.parametrize("for_us", [1, 200])
def test_short_kernels_and_calls_that_return_at_once_show_nothing(tmp_path: Path, for_us: int) -> None:
    """GIVEN kernels of 1 us, all of which end before their calls return, or long ones whose calls return at once."""
    assert not of_blocking(report_of(tmp_path, [a_rank(rank, blocks=for_us == 1, for_us=for_us) for rank in (0, 1)]))


def test_a_recorded_variable_shows_it_where_kernels_are_short(tmp_path: Path) -> None:
    traces = [a_rank(rank, blocks=False, for_us=3).capture() for rank in (0, 1)]
    for trace in traces:
        assert trace.metadata is not None
        settings = launch_settings({"CUDA_LAUNCH_BLOCKING": "1", "AMD_SERIALIZE_KERNEL": "0"})
        trace.metadata = replace(trace.metadata, settings=settings)
    (finding,) = of_blocking(report_of(tmp_path, traces))
    assert finding.evidence["variables"] == ["CUDA_LAUNCH_BLOCKING"]
