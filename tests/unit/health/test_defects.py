"""Each check of a recording has a recording with what it finds. Times are microseconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.builders import TraceBuilder
from tracekit.health.rank_checks import RANK_CHECKS, RankHealth
from tracekit.loading.recording import recording_of
from tracekit.model.metadata import RecordingNote, Window
from tracekit.rank.communication_rules import DEFAULT_RULES
from tracekit.read.decode.portable import decode

MADE_BY = {
    "truncated": "unit/health/test_cut_off.py",
    "unlinked": "unit/rank/test_flight_recorder.py",
    "unclassified": "unit/rank/test_gpu_lanes.py",
}
"""Which tests have recordings that take more than some events."""


def training(*, launched: bool = True) -> TraceBuilder:
    """Three steps of 100 us with ten kernels each."""
    trace = TraceBuilder()
    for number in range(3):
        trace.step(number, 100 * number, 100).op("aten::mm", 100 * number, 90)
        for i in range(10):
            at = 100 * number + 9 * i
            trace.kernel("gemm", at + 4, 4, launched_at=at + 1 if launched else None)
    return trace


def without_kernels(trace: TraceBuilder, *rows: int) -> TraceBuilder:
    lost = [event for event in trace.events if event["cat"] == "kernel"]
    lost = [lost[row] for row in rows] if rows else lost
    trace.events = [event for event in trace.events if not any(event is one for one in lost)]
    return trace


def moved(trace: TraceBuilder, by_us: int) -> TraceBuilder:
    for event in trace.events:
        if event["cat"] == "kernel":
            event["ts"] += by_us
    return trace


def ended(trace: TraceBuilder) -> TraceBuilder:
    return trace.event("PyTorch Profiler (0)", "Trace", 0, 310, pid="Spans", thread="PyTorch Profiler")


def with_message(trace: TraceBuilder, message: str) -> TraceBuilder:
    trace.header["WARNING"] = [message]
    return trace


def captured(**changes: Any) -> TraceBuilder:
    trace = training().capture()
    assert trace.metadata is not None
    trace.metadata = replace(trace.metadata, **changes)
    return trace


def overlapping() -> TraceBuilder:
    trace = TraceBuilder().step(0, 0, 100_000)
    for i in range(30):
        trace.kernel("gemm", 3000 * i + 10, 5000 if i == 3 else 2900, launched_at=3000 * i + 1)
    return trace


DEFECTS: dict[str, Callable[[], TraceBuilder]] = {
    "mixed-processes": lambda: training().event("aten::mm", "cpu_op", 20, 5, pid=4711, thread=1),
    "step-order": lambda: training().step(1, 300, 100),
    "device-clock": lambda: moved(training(), -25),
    "other-device": lambda: TraceBuilder().step(0, 0, 100).event("job", "mtia_ccp_events", 20, 50, pid=9, thread=1),
    "no-device-records": lambda: without_kernels(training()),
    "lost-device-records": lambda: without_kernels(training(), 12, 13),
    "out-of-range": lambda: ended(training()).kernel("gemm", 290, 10_000, launched_at=280),
    "empty-step": lambda: training().step(3, 300, 10),
    "nothing-ran": lambda: TraceBuilder().step(0, 0, 10),
    "unterminated": lambda: training().step(5, 300, 100).kernel("gemm", 320, 10, launched_at=310),
    "overlapping": overlapping,
    "rank-mismatch": lambda: training(),
    "no-steps": lambda: TraceBuilder().op("aten::mm", 0, 10),
    "before-recording": lambda: training().kernel("gemm", -5, 4),
    "unlinked-kernels": lambda: training(launched=False),
    "profiler-loss": lambda: with_message(training(), "Dropped 417 activity records"),
    "profiler": lambda: with_message(training(), "something"),
    "partial": lambda: captured(window=Window(index=0, skip=3, warmup=1, partial=True)),
    "capture": lambda: captured(notes=[RecordingNote(kind="not-available", text="no groups")]),
}


def health_of(folder: Path, trace: TraceBuilder, name: str = "rank0.json") -> RankHealth:
    return recording_of(decode(trace.write(folder / name)), DEFAULT_RULES).health


def test_every_check_has_a_recording() -> None:
    assert {check.id for check in RANK_CHECKS} == DEFECTS.keys() | MADE_BY.keys()


@pytest.mark.parametrize("check", DEFECTS)
def test_a_check_finds_its_defect(tmp_path: Path, check: str) -> None:
    health = health_of(tmp_path, DEFECTS[check](), "rank7.json" if check == "rank-mismatch" else "rank0.json")
    assert check in {note.id for note in health.notes}


@pytest.mark.parametrize(("step_us", "severity"), [(400, "warning"), (4000, "info")])
def test_a_device_clock_that_moves_nothing_notable_is_no_warning(tmp_path: Path, step_us: int, severity: str) -> None:
    """GIVEN kernels that begin 15 us before they are launched."""
    trace = TraceBuilder()
    for step in range(3):
        trace.step(step, step_us * step, step_us)
        trace.kernel("gemm", step_us * step + 10, step_us - 20, launched_at=step_us * step)
    notes = health_of(tmp_path, moved(trace, -25)).notes
    assert [note.severity for note in notes if note.id == "device-clock"] == [severity]


def test_nothing_is_found_in_a_sound_recording(tmp_path: Path) -> None:
    health = health_of(tmp_path, ended(training()))
    assert (health.notes, health.excluded, health.masked.any()) == ((), None, False)
