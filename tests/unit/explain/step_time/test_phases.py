"""What a step's time is spent on: GPU ranks by hand, and any trace by its sums. Times are microseconds."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.gpu_jobs import Family, simulate, spec_of
from tests.builders import TraceBuilder
from tests.unit.explain.summarized import summary_of
from tracekit.explain.step_time.tables import PHASE_SUMS, STEP_PHASES
from tracekit.model.spans import BACKWARD_SPAN, DATA_SPAN, RECOMPUTE_SPAN, optimizer_span
from tracekit.model.summary import RankSummary

Summarize = Callable[[TraceBuilder], RankSummary]


@pytest.fixture(scope="module")
def summarize() -> Iterator[Summarize]:
    folder = Path(tempfile.mkdtemp())

    def run(trace: TraceBuilder) -> RankSummary:
        return summary_of(trace, folder)

    yield run
    shutil.rmtree(folder)


def phases(summary: RankSummary) -> dict[str, float]:
    """Microseconds of each phase that there was."""
    return {part.phase: part.total_ns / 1000 for part in summary[PHASE_SUMS].parts if part.total_ns}


def gpu_step() -> TraceBuilder:
    """The host runs ahead; compute of the device:

    host     data 0-10, forward, backward 20-30, optimizer 30-35
    device              forward 15-40, backward 40-75, all-reduce 70-85, optimizer 85-95     step 0-100
    """
    trace = TraceBuilder().step(3, 0, 100).label(DATA_SPAN, 0, 10)
    trace.op("aten::mm", 11, 5).kernel("forward_gemm", 15, 25, launched_at=12)
    trace.label(BACKWARD_SPAN, 20, 10).backward("MmBackward0", 20, 9)
    trace.kernel("backward_gemm", 40, 35, launched_at=22).nccl("all_reduce", 70, 15, launched_at=25)
    trace.label("Optimizer.step#SGD.step", 30, 5).op("aten::add_", 31, 2)
    return trace.kernel("optimizer_add", 85, 10, launched_at=32)


def test_recomputation_and_scaled_steps_are_counted_from_the_capture_s_spans(summarize: Summarize) -> None:
    trace = gpu_step().label(RECOMPUTE_SPAN, 21, 3).label(optimizer_span("scaled_step"), 29.5, 6)
    trace.label(optimizer_span("scaled_step"), 36, 2)  # steps nothing: a gradient was infinite
    sums = summarize(trace.capture())[PHASE_SUMS]
    assert (sums.backward_passes, sums.recompute_count) == (1, 1)
    assert (sums.scaled_steps, sums.skipped_steps) == (2, 1)
    assert sums.recompute_ns == sums.recompute_compute_ns == 35_000  # of the kernel launched within it


TIMES = st.tuples(st.integers(0, 400), st.integers(0, 120))  # start and duration in ns
SPANS = [DATA_SPAN, BACKWARD_SPAN, RECOMPUTE_SPAN, "Optimizer.step#SGD.step", optimizer_span("clip")]


@st.composite
def traces(draw: st.DrawFn) -> TraceBuilder:
    """Steps, phases and work at any time, on a GPU or a CPU."""
    trace, begin = TraceBuilder(rank=0, world_size=1), 0
    for number, duration in enumerate(draw(st.lists(st.integers(20, 150), min_size=1, max_size=3))):
        trace.step(number, begin / 1000, duration / 1000)
        begin += duration
    gpu = draw(st.booleans())
    for at, duration in draw(st.lists(TIMES, min_size=1, max_size=6)):
        if gpu:
            launched_at = draw(st.one_of(st.none(), st.integers(0, at))) if at else None
            when = None if launched_at is None else launched_at / 1000
            if draw(st.booleans()):
                trace.kernel("gemm", at / 1000, duration / 1000, launched_at=when)
            else:
                trace.nccl("all_reduce", at / 1000, duration / 1000, launched_at=when)
        elif draw(st.booleans()):
            trace.op("aten::mm", at / 1000, duration / 1000)
        else:
            trace.gloo("all_reduce", at / 1000, duration / 1000, issued_at=draw(st.integers(0, at)) / 1000)
    for at, duration in draw(st.lists(TIMES, max_size=3)):
        trace.backward("MmBackward0", at / 1000, duration / 1000)
    for at, duration in draw(st.lists(TIMES, max_size=4)):
        trace.label(draw(st.sampled_from(SPANS)), at / 1000, duration / 1000)
    return trace.capture() if draw(st.booleans()) else trace


@settings(max_examples=60, deadline=None)
@given(trace=traces())
def test_phases_partition_the_steps_and_each_of_their_parts(summarize: Summarize, trace: TraceBuilder) -> None:
    summary = summarize(trace)
    if summary.unmeasured is not None:  # nothing ran
        return
    complete = [step for step in summary.steps if step.complete]
    parts = summary[PHASE_SUMS].parts
    assert tuple(part.phase for part in parts) == STEP_PHASES
    assert sum(part.total_ns for part in parts) == sum(step.step_ns for step in complete)
    for name in ("compute_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns"):
        assert sum(getattr(part, name) for part in parts) == sum(getattr(step, name) for step in complete)
        assert all(getattr(part, name) >= 0 for part in parts)
    sums = summary[PHASE_SUMS]
    if sums.recompute_ns is not None:
        assert 0 <= (sums.recompute_compute_ns or 0) <= sums.recompute_ns <= sum(part.total_ns for part in parts)


@pytest.mark.parametrize(("family", "seed"), [("ddp", 1), ("tensor", 3)])
def test_the_saving_of_data_loading_counts_that_the_others_wait_for_it(family: Family, seed: int) -> None:
    """GIVEN a simulated job in which one rank loads data longer than the others, that wait for it in communication."""
    job = simulate(spec_of(family, seed, cause="data"))
    (finding,) = [f for f in job.report(["phases", "whatif"]).findings if f.remedy == "data"]

    assert finding.saving_ns == pytest.approx(job.truth.saving_ns, rel=0.1)
