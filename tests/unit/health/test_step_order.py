"""Can steps be those of one process on one clock? Do events end so late that a time must be wrong?"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders import TraceBuilder
from tests.unit.explain.summarized import Summarize
from tracekit.loading.recording import recording_of
from tracekit.model.summary import RankSummary
from tracekit.rank.communication_rules import DEFAULT_RULES
from tracekit.read.decode.portable import decode


def complete_steps(summary: RankSummary) -> list[int]:
    return [step.step for step in summary.steps if step.complete]


def texts(summary: RankSummary) -> list[str]:
    return [note.text for note in summary.notes if note.id == "out-of-range"]


def excluded(folder: Path, trace: TraceBuilder) -> str | None:
    return recording_of(decode(trace.write(folder / "rank0.json")), DEFAULT_RULES).health.excluded


def with_steps(*numbers: int) -> TraceBuilder:
    """Steps of 100 us without a gap."""
    trace = TraceBuilder()
    for place, number in enumerate(numbers):
        trace.step(number, 100 * place, 100).op("aten::mm", 100 * place + 10, 50)
    return trace


def overlapping(first_us: int) -> TraceBuilder:
    return TraceBuilder().step(3, 0, first_us).step(4, 100, 100).op("aten::mm", 10, 50)


def three_steps(*, profiled_for: float | None = None) -> TraceBuilder:
    """Return steps of 100 us. `profiled_for` is the length of the profiler's span, or None."""
    trace = TraceBuilder()
    for number in range(3):
        trace.step(number, 100 * number, 100).op("aten::mm", 100 * number + 10, 50)
    if profiled_for is not None:
        trace.event("PyTorch Profiler (0)", "Trace", 0, profiled_for, pid="Spans", thread="PyTorch Profiler")
    return trace


def test_operators_that_begin_long_after_the_profiler(summarize: Summarize) -> None:
    """The clock was set after the last event before them."""
    summary = summarize(three_steps(profiled_for=300).op("aten::mm", 5000, 10))
    assert complete_steps(summary) == [0, 1]
    (text,) = texts(summary)
    assert text.endswith("its last event ends 4.710 ms after the recording does: step 2 does not count")


def test_a_long_kernel_tells_nothing_where_it_is_not_known_when_the_profiler_ended(summarize: Summarize) -> None:
    assert texts(summarize(three_steps().kernel("gemm", 250, 10_000, launched_at=240))) == []


@pytest.mark.parametrize(("where", "severity"), [(2, "info"), (1, "warning")])
def test_a_step_in_which_nothing_ran_on_the_device(summarize: Summarize, where: int, severity: str) -> None:
    """GIVEN a GPU rank with a step that launches nothing; behind the last `prof.step()` that is no defect."""
    trace = TraceBuilder()
    for number in range(3):
        trace.step(number, 100 * number, 100)
        if number != where:
            trace.kernel("gemm", 100 * number + 20, 50, launched_at=100 * number + 10)
    summary = summarize(trace)
    (note,) = summary.notes
    assert complete_steps(summary) == [number for number in range(3) if number != where]
    assert (note.id, note.severity, note.is_defect) == ("empty-step", severity, severity == "warning")
    assert f"nothing ran on the device in step {where}: it does not count" in note.text


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize(
    ("numbers", "reason"),
    [
        ((3, 4, 5), None),
        ((3, 4, 4), "step 4 is in it more than once"),
        ((3, 4, 3, 4), "steps 3-4 are in it more than once"),
        ((3, 5, 4), "its steps are not in the order of their numbers (its clock was set back?)"),
    ],
)
def test_numbers_of_steps_ascend(tmp_path: Path, numbers: tuple[int, ...], reason: str | None, captured: bool) -> None:
    trace = with_steps(*numbers)
    assert excluded(tmp_path, trace.capture() if captured else trace) == reason


def test_steps_do_not_overlap_but_for_rounding(tmp_path: Path) -> None:
    assert excluded(tmp_path, overlapping(102)) is None
    assert excluded(tmp_path, overlapping(103)) == "steps 3 and 4 overlap in time (its clock was set back?)"


@pytest.mark.parametrize("pid", [4711, "4711", "python"])
def test_operators_of_two_processes_are_of_two_files(tmp_path: Path, pid: int | str) -> None:
    trace = with_steps(3, 4).event("aten::mm", "cpu_op", 20, 5, pid=pid, thread=1)
    assert excluded(tmp_path, trace) == f"it is a merge: it mixes the operators of 2 processes (pid 4000, {pid})"


def test_devices_and_marks_of_the_profiler_are_no_processes(tmp_path: Path) -> None:
    trace = with_steps(3, 4).kernel("gemm", 20, 5, device=3).event("sync", "cuda_sync", 30, 5, pid=3, thread=7)
    trace.event("PyTorch Profiler (0)", "Trace", 0, 200, pid="Spans", thread="PyTorch Profiler")
    assert excluded(tmp_path, trace) is None
