"""The steps of a recording as the host saw them."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from tracekit.model.events import Bool, DecodedTrace, EventTable, Int64

_PROFILER_STEP = re.compile(r"^ProfilerStep#([0-9]{1,18})$")  # longer numbers do not fit into 64 bits

__all__ = ["HostSteps", "host_steps"]


@dataclass(frozen=True, kw_only=True, eq=False)
class HostSteps:
    """s steps in order of time.

    Attributes:
        step: numbers as recorded, int64 [s].
        start_ns: int64 [s].
        end_ns: of the span itself, int64 [s].
        data_ns: time in the data loader as the capture measured it, or -1, int64 [s].
        closed: the end of the step is known, bool [s].
        thread: as in `StepWindows`.
        source: as in `StepWindows`.
    """

    step: Int64
    start_ns: Int64
    end_ns: Int64
    data_ns: Int64
    closed: Bool
    thread: int
    source: str


def host_steps(trace: DecodedTrace, *, whole: bool = False) -> HostSteps:
    """Return the steps as the host saw them: from tracekit's metadata, else ProfilerStep spans, else the whole
    recording.
    """
    events = trace.events
    spans, numbers = _profiler_steps(events)
    thread = int(events.track[spans[0]]) if len(spans) else _busiest_thread(events)
    metadata = trace.header.metadata
    if whole:
        return _whole_recording(events, thread)
    if metadata is not None and metadata.steps:
        recorded = sorted(metadata.steps, key=lambda s: s.start_ns)
        recording_end_ns = int(events.end_ns.max()) if len(events) else recorded[-1].start_ns
        return HostSteps(
            step=np.array([s.step for s in recorded], dtype=np.int64),
            start_ns=np.array([s.start_ns for s in recorded], dtype=np.int64),
            end_ns=np.array([recording_end_ns if s.end_ns is None else s.end_ns for s in recorded], dtype=np.int64),
            data_ns=np.array([-1 if s.data_ns is None else s.data_ns for s in recorded], dtype=np.int64),
            closed=np.array([s.end_ns is not None for s in recorded], dtype=np.bool_),
            thread=thread,
            source="steps",
        )
    if len(spans):
        return HostSteps(
            step=numbers,
            start_ns=events.start_ns[spans],
            end_ns=events.end_ns[spans],
            data_ns=np.full(len(spans), -1, dtype=np.int64),
            # A step ends where the next one begins. If that one is not recorded, the end is not known.
            closed=np.append(np.diff(numbers) == 1, True),
            thread=thread,
            source="spans",
        )
    return _whole_recording(events, thread)


def _whole_recording(events: EventTable, thread: int) -> HostSteps:
    is_activity = ~events.in_category("Trace", "overhead")
    start_ns, end_ns = events.start_ns[is_activity], events.end_ns[is_activity]
    return HostSteps(
        step=np.zeros(1, dtype=np.int64),
        start_ns=np.array([start_ns.min(initial=np.iinfo(np.int64).max) if len(start_ns) else 0], dtype=np.int64),
        end_ns=np.array([end_ns.max() if len(end_ns) else 0], dtype=np.int64),
        data_ns=np.full(1, -1, dtype=np.int64),
        closed=np.ones(1, dtype=np.bool_),
        thread=thread,
        source="recording",
    )


def _profiler_steps(events: EventTable) -> tuple[Int64, Int64]:
    """Return rows and numbers of the host's ProfilerStep spans, in order of time and without duplicates."""
    on_device = events.in_category("gpu_user_annotation")
    rows = np.flatnonzero(events.named(lambda name: _PROFILER_STEP.match(name) is not None) & ~on_device)
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    numbers = np.array([int(events.strings[i].partition("#")[2]) for i in events.name[rows]], dtype=np.int64)
    _, first = (
        np.unique(np.stack((numbers, events.start_ns[rows])), axis=1, return_index=True) if len(rows) else (None, rows)
    )
    first = np.sort(first)
    return rows[first], numbers[first]


def _busiest_thread(events: EventTable) -> int:
    """Return the track with the most operators: the training loop runs there if no step span says otherwise."""
    rows = np.flatnonzero(events.in_category("cpu_op"))
    if not len(rows):
        return -1
    keys = (events.track[rows], events.start_ns[rows], events.duration_ns[rows], events.name[rows])
    tracks = np.unique(np.stack(keys), axis=1)[0]  # a duplicated event counts once
    count = np.bincount(tracks)
    most = np.flatnonzero(count == count.max()).tolist()
    return int(min(most, key=lambda i: (str(events.tracks[i].pid).zfill(20), str(events.tracks[i].tid).zfill(20))))
