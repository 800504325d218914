"""Merged traces of unusual runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

from benchmarks.exchanges import actions, rank, run_of
from tests.builders import TraceBuilder, write_run
from tests.unit.explain.pipeline.test_bubbles import gpipe, layout
from tracekit.api import analyze
from tracekit.explain.pipeline.bubbles import pipeline
from tracekit.explain.pipeline.tables import Actions
from tracekit.loading.load import load
from tracekit.loading.options import StepSelection
from tracekit.render.merged.derived_tracks import tracks_of_rank
from tracekit.render.merged.merge import merge
from tracekit.render.merged.plan import plan_of


def test_a_step_without_any_action_of_a_rank_is_one_bubble() -> None:
    """GIVEN a step of 10 ns in which only the first stage ran THEN all of it is a bubble of the second, as reported."""
    stages = list(gpipe())
    stages[0] = Actions.concatenate([stages[0], actions(("F", 0, 1000, 1010), stage=0, step=6)])
    run = run_of(
        [
            rank(i, actions=stage, steps=(5, 6), pipeline=layout("gpipe", 2, 2, i), pipeline_ranks=(0, 1))
            for i, stage in enumerate(stages)
        ]
    )
    report = pipeline(run)
    assert report is not None
    totals = []
    for plan in plan_of(run).ranks:
        (bubble,) = [track.slices for track in tracks_of_rank(plan, StepSelection()) if track.name == "bubble"]
        totals.append(int(bubble.duration_ns.sum()))
    assert totals == report.by_rank["bubble_ns"].tolist()
    assert bubble.duration_ns[-1] == 10


def test_a_run_that_begins_before_zero_is_shifted_as_a_whole(tmp_path: Path) -> None:
    """GIVEN clocks near zero, of which one is ahead THEN all times are shifted alike, and so is the critical path."""
    ranks = []
    for number in range(2):
        trace = TraceBuilder(number, 2)
        trace.base_ns, trace.origin_ns = 0, 1000
        for k in range(4):
            at = 10_000 * k
            trace.step(k, at, 10_000).kernel("gemm", at + 10, 4_000, launched_at=at)
            trace.nccl("all_reduce", at + 5_000, 1_000, launched_at=at + 1)
        ranks.append(trace)
    run = load(write_run(tmp_path / "in", ranks))
    ahead = replace(run.clocks[1], offset_ns=3_000_000, drift_ppm=None)
    run = replace(run, clocks=(replace(run.clocks[0], drift_ppm=None), ahead))
    plan = plan_of(run)
    assert plan.first_ns == 0
    for before, page in zip(run.clocks, plan.ranks, strict=True):
        starts_ns = np.array([step.start_ns for step in page.summary.steps])
        moved_ns = page.clock.to_run(starts_ns) - before.to_run(starts_ns)
        assert set(moved_ns.tolist()) == {plan.shift_ns}
    assert plan.shift_ns > 0
    merged = merge(run, tmp_path / "run.pftrace", report=analyze(run))
    times = [p.timestamp for p in Trace.FromString(merged.path.read_bytes()).packet if p.HasField("track_event")]
    assert min(times) >= 0


@pytest.mark.parametrize("same_numbers", [True, False])
def test_a_backward_operator_has_an_arrow_from_its_forward_thread(tmp_path: Path, same_numbers: bool) -> None:
    """GIVEN two forward threads WHEN both have equally many of the sequence numbers THEN there is no arrow, else the
    right ones."""
    trace = TraceBuilder(0, 1).step(0, 0, 1000)
    for i, thread in enumerate((50, 51)):
        for number in (5, 6) if same_numbers else (5, 6 + i):
            forward = {"Sequence number": number, "Fwd thread id": 0}
            trace.op(f"forward {i} {number}", 10 * number + i, 5, thread=thread, **forward)
            backward = {"Sequence number": number, "Fwd thread id": i + 1}
            trace.op(f"backward {i} {number}", 500 + 40 * number + 20 * i, 10, thread=60 + i, **backward)
    merged = merge(load(write_run(tmp_path / "in", [trace])), tmp_path / "run.pftrace")
    packets = Trace.FromString(merged.path.read_bytes()).packet
    names = {n.iid: n.name for p in packets for n in p.interned_data.event_names}
    arrows: dict[int, list[str]] = {}
    for event in (p.track_event for p in packets if p.HasField("track_event")):
        for number in event.flow_ids:
            arrows.setdefault(number, []).append(names[event.name_iid])
    joined = {
        tuple(name.removeprefix("forward ").removeprefix("backward ") for name in ends) for ends in arrows.values()
    }
    assert joined == (set() if same_numbers else {("0 5",) * 2, ("0 6",) * 2, ("1 5",) * 2, ("1 7",) * 2})
