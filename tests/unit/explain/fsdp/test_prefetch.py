"""What prefetching would hide, predicted from simulated runs without it and checked against runs with it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.gpu_jobs import JobSpec, simulate
from benchmarks.gpu_jobs.strategies.fsdp import Unit, train_units
from tests.builders import TraceBuilder, write_run
from tracekit.explain.configuration import CONFIGURATION
from tracekit.explain.fsdp.prefetch import predicted_waits_ns
from tracekit.explain.fsdp.tables import FSDP_GATHERS, FsdpGathers
from tracekit.explain.fsdp.units import fsdp
from tracekit.findings.finding import Finding, held
from tracekit.model.metadata import Settings
from tracekit.model.table import records
from tracekit.rank.phases import PHASES
from tracekit.report.report import Report, analyze


def blocks(gather_us: float, forward_us: float = 500, count: int = 6) -> list[Unit]:
    return [
        Unit(name=f"blocks.{i}", size_bytes=8 << 20, gather_us=gather_us, forward_us=forward_us) for i in range(count)
    ]


def report_of(units: list[Unit], *, ahead: int = 0, waits: bool = True, steps: int = 5) -> Report:
    """Return the report on two ranks that gather so many units ahead, forward and backward.

    With `waits` their hosts wait for the device after each unit, and do not gather early by themselves.
    """
    job = simulate(
        JobSpec(family="fsdp", dp=2, steps=steps),
        lambda rank: train_units(rank, units, forward_ahead=ahead, backward_ahead=ahead, waits=waits),
    )
    return job.report()


def step_ns(report: Report) -> float:
    """Of the slowest rank, mean over the steps."""
    assert report.breakdown is not None
    return max(row["step_ns"] / row["steps"] for row in records(report.breakdown.ranks))


def predicted_saving_ns(report: Report, ahead: int) -> float:
    assert report.fsdp is not None
    return sum(row["saving_ns"] for row in records(report.fsdp.prefetching) if row["ahead"] == ahead)


def forward_wait_ns(report: Report) -> float:
    """A step's, mean over ranks."""
    of_ranks = [summary[FSDP_GATHERS] for summary in report.run.ranks]
    steps = sum(len(np.unique(gathers.step)) for gathers in of_ranks)
    return sum(int(gathers.wait_ns[gathers.phase == PHASES.index("forward")].sum()) for gathers in of_ranks) / steps


def fsdp_findings(report: Report) -> dict[str, Finding]:
    """By phase."""
    assert report.fsdp is not None
    return {str(finding.evidence["phase"]): finding for finding in held(report.fsdp.findings)}


@pytest.mark.parametrize("ahead", [1, 2])
@pytest.mark.parametrize("gather_us", [300, 800], ids=["short gathers", "gathers longer than compute"])
def test_prefetching_saves_what_is_predicted(gather_us: float, ahead: int) -> None:
    without = report_of(blocks(gather_us))
    with_it = report_of(blocks(gather_us), ahead=ahead)
    saved_ns = step_ns(without) - step_ns(with_it)
    assert saved_ns > 0.25 * step_ns(without)
    assert predicted_saving_ns(without, ahead) == pytest.approx(saved_ns, rel=0.04)


def test_modules_that_wait_are_named_with_the_setting_and_what_it_saves() -> None:
    """GIVEN 5 of 6 all-gathers of 300 us that compute could cover: 500 us forward and 1000 us backward.

    Backward all-gathers run after a reduction of 300 us.
    """
    report = report_of(blocks(300))
    findings = fsdp_findings(report)
    assert set(findings) == {"forward", "backward"}
    forward, backward = findings["forward"], findings["backward"]
    assert "6 modules" in forward.text
    assert "issued as they are needed" in forward.text
    assert forward.action is not None
    assert "one module ahead (set_modules_to_forward_prefetch)" in forward.action
    assert "for up to 8.39 MB of memory" in forward.action
    assert "set_modules_to_backward_prefetch" in str(backward.action)
    assert (forward.evidence["modules_ahead"], forward.evidence["memory_bytes"]) == (1, 8 << 20)
    assert {finding.cause for finding in findings.values()} == {"transfer"}
    assert forward.time_ns == pytest.approx(forward_wait_ns(report), rel=0.01)
    assert {phase: finding.saving_ns for phase, finding in findings.items()} == {
        "forward": pytest.approx(5 * 300_000, rel=0.02),
        "backward": pytest.approx(5 * 600_000, rel=0.05),  # less what is launched meanwhile
    }


@pytest.mark.parametrize("waits", [True, False])
def test_a_run_that_prefetches_needs_no_advice(waits: bool) -> None:
    assert fsdp_findings(report_of(blocks(300), ahead=1, waits=waits)) == {}


def test_a_host_that_runs_ahead_needs_no_prefetching_forward() -> None:
    assert set(fsdp_findings(report_of(blocks(300), waits=False))) == {"backward"}


def test_one_step_gives_no_advice() -> None:
    report = report_of(blocks(300), steps=1)
    assert fsdp_findings(report) == {}
    assert report.fsdp is not None
    assert {row["error_ns"] for row in records(report.fsdp.prefetching)} == {None}


def gathers(waits_ns: list[int], transfers_ns: list[int], spans_ns: list[int]) -> FsdpGathers:
    count, zeros = len(waits_ns), np.zeros(len(waits_ns), dtype=np.int64)
    return FsdpGathers(
        step=zeros,
        module=np.array([f"blocks.{i}" for i in range(count)], dtype=object),
        phase=zeros.astype(np.int32),
        ahead=zeros,
        size_bytes=zeros + 1000,
        transfer_ns=np.array(transfers_ns, dtype=np.int64),
        wait_ns=np.array(waits_ns, dtype=np.int64),
        span_ns=np.array(spans_ns, dtype=np.int64),
        compute_ns=np.array(spans_ns, dtype=np.int64),
        busy_ns=zeros,
        drain_ns=zeros - 1,
    )


def test_waiting_for_a_late_rank_is_not_hidden() -> None:
    """GIVEN an all-gather of 100 ns, of which 70 are waiting for a late rank. THEN these 70 remain."""
    modules = gathers([50, 100], [50, 100], [200, 200])
    assert predicted_waits_ns(modules, np.array([50, 30]), ahead=1).tolist() == [50, 70]


def test_no_module_is_predicted_to_wait_longer_than_it_did() -> None:
    modules = gathers([0, 5], [50, 100], [10, 10])
    assert predicted_waits_ns(modules, np.array([50, 100]), ahead=1).tolist() == [0, 5]


def test_on_a_cpu_where_all_gathers_block_there_is_no_forecast(tmp_path: Path) -> None:
    traces = []
    for rank in range(2):
        trace = TraceBuilder(rank)
        for step in range(3):
            at = 300 * step
            trace.step(step, at, 300).op("aten::mm", at + 5, 90)
            trace.label("FSDP::all_gather (blocks.0)", at + 100, 60).gloo("all_gather", at + 102, 50)
            trace.label("FSDP::all_gather_copy_out (blocks.0)", at + 160, 5).op("aten::mm", at + 170, 100)
        traces.append(trace)
    report = analyze(write_run(tmp_path, traces))
    assert report.fsdp is not None
    assert (report.fsdp.findings, len(report.fsdp.prefetching)) == ((), 0)
    assert report.fsdp.unavailable is not None
    assert "prefetching would hide nothing" in report.fsdp.unavailable.reason


@pytest.mark.parametrize(
    ("backward_prefetch", "advised"), [(None, {"forward", "backward"}), ("BACKWARD_PRE", {"forward"})]
)
def test_fsdp1_is_told_what_its_setting_is_and_not_to_set_what_is_set(
    backward_prefetch: str | None, advised: set[str]
) -> None:
    run = report_of(blocks(400)).run
    settings = (
        Settings(component="fsdp1", values={"forward_prefetch": False, "backward_prefetch": backward_prefetch}),
    )
    ranks = tuple(replace(s, strategies=("fsdp1",)).with_part(CONFIGURATION, settings) for s in run.ranks)
    found = fsdp(replace(run, ranks=ranks)).findings

    assert {str(finding.evidence["phase"]) for finding in found} == advised
    (forward,) = (finding for finding in found if finding.evidence["phase"] == "forward")
    assert "(forward_prefetch=True, now False)" in str(forward.action)
