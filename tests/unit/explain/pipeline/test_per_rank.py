"""Times of the actions of one GPU rank. Times in us."""

from __future__ import annotations

from pathlib import Path

from tests.builders import TraceBuilder
from tests.unit.explain.summarized import summary_of
from tracekit.explain.pipeline.tables import ACTIONS
from tracekit.model.spans import pipeline_span


def test_an_action_is_idle_in_its_parts_and_waits_between_them(tmp_path: Path) -> None:
    """GIVEN a forward whose loss follows 200 later: kernels 20-50 and 60-80, then 280-290 and 310-320."""
    trace = TraceBuilder(0).step(0, 0, 500).label(pipeline_span("F", 0, 0), 0, 20)
    trace.kernel("forward", 20, 30, launched_at=5).kernel("forward", 60, 20, launched_at=10)
    trace.label(pipeline_span("F", 0, 0, loss=True), 200, 20)
    trace.kernel("loss", 280, 10, launched_at=205).kernel("loss", 310, 10, launched_at=210)
    actions = summary_of(trace, tmp_path)[ACTIONS]
    times_us = {name: (getattr(actions, name) / 1000).tolist() for name in ("wait_ns", "idle_ns")}
    assert times_us == {"wait_ns": [200], "idle_ns": [10 + 20]}
