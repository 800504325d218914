"""Actions of a pipeline that was recorded without tracekit, from the labels that torch writes around them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders import TraceBuilder, write_run
from tracekit.explain.pipeline.bubbles import Pipeline, pipeline
from tracekit.explain.section import Unavailable
from tracekit.loading.load import load


def analysed(folder: Path, *traces: TraceBuilder) -> Pipeline | None:
    return pipeline(load(write_run(folder, traces)))


def first_rank() -> TraceBuilder:
    """Two microbatches of stage 0: forward 10, then a wait for the gradient, backward 20."""
    trace = TraceBuilder(0).step(0, 0, 200).label("PP:0F0", 0, 10).label("PP:0F1", 10, 10)
    trace.label("PP:0SEND_F0", 10, 1).label("PP:0B0", 20, 50).gloo("recv", 20, 30)
    return trace.label("PP:0B1", 70, 20).gloo("recv", 25, 45, issued_at=25)


def second_rank() -> TraceBuilder:
    trace = TraceBuilder(1).step(0, 0, 200).label("PP:1F0", 0, 20).gloo("recv", 0, 10).label("PP:1F1", 20, 10)
    return trace.label("PP:1B0", 30, 20).label("PP:1B1", 50, 20)


def test_waiting_for_a_receive_is_no_part_of_an_action(tmp_path: Path) -> None:
    """As in `test_bubbles.gpipe`, a third of which is bubbles."""
    result = analysed(tmp_path, first_rank(), second_rank())
    assert result is not None
    assert (result.schedule, result.schedule_inferred, result.stages, result.microbatches) == ("gpipe", True, 2, 2)
    assert result.by_rank[["busy_ns", "bubble_ns"]].to_numpy().tolist() == [[60_000, 30_000], [60_000, 30_000]]
    assert result.bubble_ratio == result.ideal_bubble_ratio == pytest.approx(1 / 3)


def test_a_label_for_forward_and_backward_together_leaves_actions_unknown(tmp_path: Path) -> None:
    overlapped = [trace.label("PP:(0F1;1B0)OVERLAP_F_B", 100, 30) for trace in (first_rank(), second_rank())]
    assert isinstance(analysed(tmp_path, *overlapped), Unavailable)


def test_spans_of_the_capture_are_preferred_to_those_of_torch(tmp_path: Path) -> None:
    traces = [first_rank(), second_rank()]
    for place, trace in enumerate(traces):
        trace.label(f"tracekit.pp:F.s{place}.mb0", 90, 5)
    result = analysed(tmp_path, *traces)
    assert result is not None
    assert result.by_stage[["kind", "count", "mean_ns"]].to_numpy().tolist() == [["F", 1, 5000]] * 2
