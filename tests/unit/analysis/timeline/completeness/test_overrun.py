"""Do events end so long after the recording that a time must be wrong? Which steps count then?"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.builders import TraceBuilder
from tracekit.analysis.per_rank.options import SummaryOptions
from tracekit.analysis.per_rank.summarize import summarize_trace
from tracekit.model.summary import RankSummary
from tracekit.read.decode.portable import decode

Summarize = Callable[[TraceBuilder], RankSummary]


@pytest.fixture
def summarize(tmp_path: Path) -> Summarize:
    return lambda trace: summarize_trace(decode(trace.write(tmp_path / "rank0.json")), 0, SummaryOptions())


def complete_steps(summary: RankSummary) -> list[int]:
    return [step.step for step in summary.steps if step.complete]


def texts(summary: RankSummary) -> list[str]:
    return [note.text for note in summary.notes if note.kind == "out_of_range"]


def three_steps(*, profiled_for: float | None) -> TraceBuilder:
    """Return steps of 100 us. `profiled_for` is the length of the profiler's span, or None."""
    trace = TraceBuilder()
    for number in range(3):
        trace.step(number, 100 * number, 100).op("aten::mm", 100 * number + 10, 50)
    if profiled_for is not None:
        trace.event("PyTorch Profiler (0)", "Trace", 0, profiled_for, pid="Spans", thread="PyTorch Profiler")
    return trace


@pytest.mark.parametrize(("end", "expected"), [(590, [0, 1, 2]), (700, [0])])
def test_an_operator_that_ends_long_after_the_profiler(summarize: Summarize, end: int, expected: list[int]) -> None:
    """A little later is possible: clocks differ. Steps count up to the one in which the operator begins."""
    summary = summarize(three_steps(profiled_for=300).op("aten::mm", 180, end - 180))
    assert complete_steps(summary) == expected
    assert len(texts(summary)) == (len(expected) < 3)


def test_operators_that_begin_long_after_the_profiler(summarize: Summarize) -> None:
    """The clock was set after the last event before them."""
    summary = summarize(three_steps(profiled_for=300).op("aten::mm", 5000, 10))
    assert complete_steps(summary) == [0, 1]
    (text,) = texts(summary)
    assert text.endswith("its last event ends 4.710 ms after the recording does: step 2 does not count")


def test_a_file_without_the_profilers_span_may_go_on_behind_its_steps(summarize: Summarize) -> None:
    trace = three_steps(profiled_for=None).op("aten::mm", 5000, 10)
    assert complete_steps(summarize(trace)) == [0, 1]
    assert complete_steps(summarize(trace.op("aten::mm", 400, 10))) == [0, 1, 2], "such as an evaluation"


def test_a_long_kernel_tells_nothing_where_it_is_not_known_when_the_profiler_ended(summarize: Summarize) -> None:
    summary = summarize(three_steps(profiled_for=None).kernel("gemm", 250, 10_000, launched_at=240))
    assert texts(summary) == []
