"""Recordings of one GPU rank for tests of what is kept of it for replays. Times are microseconds."""

from __future__ import annotations

from pathlib import Path

from tests.builders import TraceBuilder
from tracekit.explain.pipeline.tables import Actions
from tracekit.explain.whatif.launch_intervals import launch_intervals
from tracekit.explain.whatif.tables import CUTS, LaunchIntervals
from tracekit.loading.recording import recording_of
from tracekit.model.events import ABSENT
from tracekit.rank.communication_rules import DEFAULT_RULES
from tracekit.rank.point_to_point import rank_messages
from tracekit.rank.recorded_steps import RecordedSteps
from tracekit.read.decode.portable import decode

Row = dict[str, object]


def recorded(trace: TraceBuilder, folder: Path) -> RecordedSteps:
    """Return the recording of a trace that is written to a folder."""
    decoded = decode(trace.write(folder / f"rank{trace.rank}.json", "compact"))
    recording = recording_of(decoded, DEFAULT_RULES)
    lanes = recording.lanes
    messages = rank_messages(decoded, lanes)
    return RecordedSteps(trace=decoded, lanes=lanes, phases=recording.phases, steps=(), messages=messages)


def rows(trace: TraceBuilder, folder: Path) -> list[Row]:
    """Return the intervals of a trace by name of column, times from the trace's begin; what is absent is left out."""
    intervals = launch_intervals(recorded(trace, folder), Actions.empty())
    begin_ns = trace.wall_ns(0)
    result = []
    for i in range(len(intervals)):
        row: Row = {"what": CUTS[int(intervals.what[i])]}
        for name in LaunchIntervals.__dataclass_fields__:
            value = int(getattr(intervals, name)[i])
            if name in ("what", "step", "needs_kernels") or value == ABSENT:
                continue
            is_length = name in ("device_ns", "limit_host_ns", "limit_device_ns")
            row[name.removesuffix("_ns")] = (value if is_length else value - begin_ns) / 1000
        if intervals.needs_kernels[i] != ABSENT:
            row["needs_kernels"] = bool(intervals.needs_kernels[i])
        result.append(row)
    return result


def synchronise(trace: TraceBuilder, at_us: float, for_us: float, call: str = "cudaStreamSynchronize") -> None:
    """Let the host wait for its device."""
    trace.event(call, "cuda_runtime", at_us, for_us, args={})
