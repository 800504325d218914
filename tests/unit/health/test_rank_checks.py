"""What is told of a recording. Times are microseconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders import TraceBuilder
from tests.summarized_trace import summarize_trace
from tests.unit.explain.summarized import summary_of
from tracekit.loading.options import SummaryOptions
from tracekit.model.notes import Note
from tracekit.read.decode.portable import decode


def notes(folder: Path, trace: TraceBuilder) -> list[Note]:
    return list(summary_of(trace, folder).notes)


def training(lost: set[tuple[int, int]], steps: int = 3) -> TraceBuilder:
    """Steps with 200 kernels each; of those that are `lost`, by step and number, there is only the launch."""
    trace = TraceBuilder()
    for k in range(steps):
        trace.step(k, 1000 * k, 1000)
        for i in range(200):
            trace.kernel("gemm", 1000 * k + 5 * i + 1, 2, launched_at=1000 * k + 5 * i)
            if (k, i) in lost:
                trace.events.pop()
    return trace


def of_step(k: int, count: int, first: int = 0) -> set[tuple[int, int]]:
    return {(k, i) for i in range(first, first + count)}


def test_a_step_that_does_not_count_is_named_with_what_it_lacks(tmp_path: Path) -> None:
    (note,) = notes(tmp_path, training(of_step(1, 50)))
    assert (note.id, note.severity, note.is_defect) == ("lost-device-records", "warning", True)
    assert note.text == (
        "rank 0: rank0.json: step 1 lacks device records and does not count (50 of 200 launches there have no kernel)"
    )


def test_several_steps_are_told_together(tmp_path: Path) -> None:
    (note,) = notes(tmp_path, training(of_step(0, 50) | of_step(1, 30)))
    assert "steps 0-1 lack device records and do not count (80 of 400 launches" in note.text


def test_kernels_that_may_run_later_are_told_as_such(tmp_path: Path) -> None:
    (note,) = notes(tmp_path, training(of_step(2, 60, first=140)))
    assert "step 2 lacks" in note.text
    assert note.text.endswith("(60 of 200 launches there have no kernel: they had not run when the recording ended, or "
                              "are lost)")  # fmt: skip


def test_a_few_missing_kernels_are_counted(tmp_path: Path) -> None:
    (note,) = notes(tmp_path, training({(0, 5), (2, 7)}))
    assert (note.id, note.severity) == ("lost-device-records", "info")
    assert "2 of 600 launches have no kernel; sums lack what these took" in note.text


def test_a_rank_whose_steps_all_lack_kernels_is_said_to_be_compared_with_none(tmp_path: Path) -> None:
    (note,) = notes(tmp_path, training(of_step(0, 9) | of_step(1, 9) | of_step(2, 9)))
    assert (
        "device records are missing in each of its steps: its times are n/a and join no comparison (27 of 600"
        in note.text
    )


def test_a_rank_without_kernels_has_a_remedy(tmp_path: Path) -> None:
    (note,) = notes(tmp_path, training(of_step(0, 200), steps=1))
    assert "none of the 200 kernels that it launched is recorded: its times are n/a" in note.text
    assert "ProfilerActivity.CUDA" in note.text


def test_a_file_that_was_cut_off_has_one_note(tmp_path: Path) -> None:
    path = training(set()).write(tmp_path / "rank0.json", "compact")
    path.write_bytes(path.read_bytes()[:-5000])
    summary = summarize_trace(decode(path), 0, SummaryOptions())
    assert [note.id for note in summary.notes] == ["truncated"]


@pytest.mark.parametrize(
    "message",
    [
        "Exceeded max GPU buffer count (33 > 32) - terminating tracing",
        "Dropped 417 activity records",
        "State: CollectTrace stopped by CUPTI. (Buffer size configured is 128MB)",
        "Record counts: Out-of-range = 4, CUPTI stopped early? = 1",
        "CUPTI initialization failed - CUDA profiler activities will be missing",
        "function cbapi->getCuptiStatus() failed with error CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED (39)",
    ],
)
def test_messages_that_tell_of_loss_are_defects(tmp_path: Path, message: str) -> None:
    trace = training(set())
    trace.header["WARNING"] = [message]
    (note,) = notes(tmp_path, trace)
    assert (note.id, note.severity) == ("profiler-loss", "warning")
    assert note.text == f"rank 0: rank0.json: the profiler wrote: {message}"


@pytest.mark.parametrize(("with_launch", "told"), [(0, True), (49, True), (50, False), (100, False)])
def test_kernels_without_a_launch(tmp_path: Path, with_launch: int, told: bool) -> None:
    """GIVEN 100 kernels behind the first step's begin, and some that come first have a launch."""
    trace = TraceBuilder().step(0, 0, 1000)
    for i in range(100):
        trace.kernel("gemm", 10 * i + 5, 2, launched_at=10 * i if i < with_launch else None)
    summary = summary_of(trace, tmp_path)
    assert [note.id for note in summary.notes] == ["unlinked-kernels"] * told


def test_without_steps_launches_do_not_matter(tmp_path: Path) -> None:
    trace = TraceBuilder().op("aten::mm", 0, 1000).kernel("gemm", 10, 900)
    assert [note.id for note in notes(tmp_path, trace)] == ["no-steps"]


def test_events_without_categories_are_of_the_old_profiler(tmp_path: Path) -> None:
    trace = TraceBuilder()
    for pid in ("CPU functions", "CUDA functions"):
        for k in range(3):
            trace.raw(name="aten::mm", ph="X", ts=trace.ts(10 * k), dur=8, tid=0, pid=pid, args={})
    summary = summary_of(trace, tmp_path)
    assert "no categories" in (summary.unmeasured or "")
