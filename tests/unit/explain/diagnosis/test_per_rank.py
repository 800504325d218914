"""What is kept of one rank to divide its time: nothing is lost, nothing counts twice."""

from __future__ import annotations

from pathlib import Path

from tests.builders import TraceBuilder
from tests.unit.explain.summarized import summary_of
from tracekit.explain.diagnosis.tables import ACTIVITIES, PHASE_ACTIVITIES
from tracekit.rank.phases import STEP_PHASES


def test_all_of_a_step_but_its_exposed_communication_has_an_activity(tmp_path: Path) -> None:
    """GIVEN a step of 100 us: 30 us of compute, a reduction of 40 us of which 10 are hidden, and 40 us without any."""
    trace = TraceBuilder().step(0, 0, 100).kernel("gemm", 10, 30, launched_at=2)
    trace.nccl("all_reduce", 30, 40, launched_at=5)
    summary = summary_of(trace, tmp_path)

    (step,) = summary.steps
    rows = summary[PHASE_ACTIVITIES]
    times_us = {name: int(rows.time_ns[rows.activity == i].sum()) / 1000 for i, name in enumerate(ACTIVITIES)}
    assert times_us.pop("compute") == 30.0
    assert times_us.pop("copy") == 0.0
    assert sum(times_us.values()) == step.idle_ns / 1000
    assert int(rows.time_ns.sum()) == step.step_ns - step.exposed_comm_ns
    assert (rows.end_ns - rows.begin_ns >= rows.time_ns).all()
    assert rows.phase.max() < len(STEP_PHASES)
