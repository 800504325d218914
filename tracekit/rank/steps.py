"""Which time each step of a recording takes: as the host saw it, and in windows that hold for all lanes of the rank.

Windows are contiguous. On a CPU rank one reaches from the start of a step to the start of the next. On a GPU rank the
host runs ahead: step k begins when the last compute kernel that was launched before its host start has ended
(docs/definitions.md, "Steps").

A recording without steps is one window, from its first to its last event on the device, or on a CPU rank on the host.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from tracekit.model.communication import CommunicationEvents
from tracekit.model.events import Bool, DecodedTrace, EventTable, Int64
from tracekit.model.intervals import Intervals
from tracekit.rank.found_steps import find_steps, optimizer_spans
from tracekit.rank.kernel_launches import DeviceEvents
from tracekit.rank.phases import backward_operators, data_loading

_PROFILER_STEP = re.compile(r"^ProfilerStep#([0-9]{1,18})$")  # longer numbers do not fit into 64 bits


@dataclass(frozen=True, kw_only=True)
class StepSearch:
    """How the steps of a recording are to be found.

    Attributes:
        whole: the recording is one window, whether it has steps or not.
        anchor: a regular expression for the names of events that begin a step; None: what is there shows the steps.
        first: the number of the first step, where no marks number them.
    """

    whole: bool = False
    anchor: str | None = None
    first: int = 0


RECORDED_STEPS = StepSearch()


@dataclass(frozen=True, kw_only=True, eq=False)
class StepWindows:
    """s windows in order of time.

    Attributes:
        host: the steps as the host saw them.
        start_ns: int64 [s].
        end_ns: the next start, int64 [s].
        data_ns: time in the data loader, or -1, int64 [s].
        complete: whether the end is known and no check excludes the step (`analysis.health`), bool [s].
    """

    host: HostSteps
    start_ns: Int64
    end_ns: Int64
    data_ns: Int64
    complete: Bool

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def step(self) -> Int64:
        """Return the numbers as recorded, int64 [s]."""
        return self.host.step

    @property
    def host_start_ns(self) -> Int64:
        """Return when the host began each step, int64 [s]."""
        return self.host.start_ns

    @property
    def host_end_ns(self) -> int:
        """Return the end of the last step on the host."""
        return int(self.host.end_ns[-1])

    @property
    def thread(self) -> int:
        """Return the track of the steps' spans, or -1."""
        return self.host.thread

    @property
    def source(self) -> str:
        """Return "steps" (tracekit's metadata), "spans" (ProfilerStep), a source of `FoundSteps`, or "recording" (no
        steps: one window).
        """
        return self.host.source

    def host_time(self, windows: Bool) -> Intervals:
        """Return when the host was in the windows of a mask, bool [s]."""
        ends_ns = np.append(self.host_start_ns[1:], self.host_end_ns)
        return Intervals.union_of(self.host_start_ns[windows], ends_ns[windows])

    def index_of(self, time_ns: Int64) -> Int64:
        """Return int64 [n]: the step in which the host was at each time; -1 before the first and after the last.

        Without steps the only window holds everything, even what was launched before the recording.
        """
        if self.source == "recording":
            return np.zeros(len(time_ns), dtype=np.int64)
        index = np.searchsorted(self.host_start_ns, time_ns, side="right").astype(np.int64) - 1
        index[time_ns >= self.host_end_ns] = -1
        return index

    def index_of_device(self, device: DeviceEvents, device_start_ns: Int64) -> Int64:
        """Return int64 [m]: the step that launched each device event; -1 for events of no step.

        An event without a launch belongs to the window in which it starts. `device_start_ns` are the starts, int64 [m].
        """
        index = self.index_of(device.launch_ns)
        if self.source == "recording":
            return index
        unlinked = ~device.linked & ~device.before_recording
        unlinked_start_ns = device_start_ns[unlinked]
        window = np.searchsorted(self.start_ns, unlinked_start_ns, side="right").astype(np.int64) - 1
        window[unlinked_start_ns >= self.end_ns[-1]] = -1
        index[unlinked] = window
        return index


def step_windows(
    trace: DecodedTrace,
    device: DeviceEvents,
    computes: Bool,
    communication: CommunicationEvents,
    search: StepSearch = RECORDED_STEPS,
) -> StepWindows:
    """Return the windows of a trace. Whether a step counts is not looked for here.

    `computes` says which device events are compute kernels, bool [m].
    """
    events = trace.events
    host = host_steps(trace, device, computes, communication, search)
    edge_ns = np.append(host.start_ns, host.end_ns[-1])
    if len(device.row) and host.source != "recording":
        edge_ns = device_starts(events, edge_ns, device, computes)
    if host.source in ("steps", "spans"):  # nothing tells where the device is done with the last one
        edge_ns[-1] = host.end_ns[-1]
        # an event without known launch may lie in the last host window and yet before the last window
        known = device.linked | device.before_recording
        begin_ns = np.where(known, host.start_ns[-1], edge_ns[-2])
        at_ns = np.where(known, device.launch_ns, events.start_ns[device.row])
        in_last = (at_ns >= begin_ns) & (at_ns < edge_ns[-1])
        edge_ns[-1] = max(edge_ns[-1], events.end_ns[device.row[in_last]].max(initial=edge_ns[-1]))
    start_ns, end_ns = edge_ns[:-1], edge_ns[1:]
    return StepWindows(
        host=host,
        start_ns=start_ns,
        end_ns=np.maximum(end_ns, start_ns),
        data_ns=_data_ns(events, host),
        complete=host.closed & (end_ns > start_ns),
    )


def _data_ns(events: EventTable, host: HostSteps) -> Int64:
    """Return int64 [s]: time in spans of data loaders on the step's thread; without any, what the capture measured."""
    loading = data_loading(events, host.thread)
    if not len(loading):
        return host.data_ns
    ends_ns = np.append(host.start_ns[1:], host.end_ns[-1])
    windows = zip(host.start_ns.tolist(), ends_ns.tolist(), strict=True)
    return np.array([loading.clip(begin, end).len_ns for begin, end in windows], dtype=np.int64)


def device_starts(events: EventTable, host_start_ns: Int64, device: DeviceEvents, computes: Bool) -> Int64:
    """Return when the device came to what the host began at each time, int64 [n].

    That is the time itself or the end of the last compute kernel launched before it, whichever is later. For the starts
    of steps it is b_k of docs/definitions.md. `computes` says which device events are compute kernels, bool [m].
    """
    launch_ns = device.launch_ns[computes]
    order = np.argsort(launch_ns, kind="stable")
    reach_ns = np.maximum.accumulate(events.end_ns[device.row[computes]][order])
    launched_before = np.searchsorted(launch_ns[order], host_start_ns, side="left")
    start_ns = host_start_ns.copy()
    has_earlier = launched_before > 0
    start_ns[has_earlier] = np.maximum(start_ns[has_earlier], reach_ns[launched_before[has_earlier] - 1])
    return start_ns


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


def host_steps(
    trace: DecodedTrace,
    device: DeviceEvents,
    computes: Bool,
    communication: CommunicationEvents,
    search: StepSearch = RECORDED_STEPS,
) -> HostSteps:
    """Return the steps as the host saw them: from tracekit's metadata, else ProfilerStep spans, else what shows them,
    else the whole recording. An anchor comes first.
    """
    events, metadata = trace.events, trace.header.metadata
    is_searched = search.whole or search.anchor is not None
    spans, step = _profiler_steps(events)
    thread = step_thread(events)
    if not is_searched and metadata is not None and metadata.steps:
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
    if not is_searched and len(spans):
        source, start_ns, end_ns = "spans", events.start_ns[spans], events.end_ns[spans]
    else:
        found = None if search.whole else find_steps(events, communication, device.launch_ns[computes], search.anchor)
        edge_ns = _edges(events, device) if found is None else found.edge_ns
        source, start_ns, end_ns = "recording" if found is None else found.source, edge_ns[:-1], edge_ns[1:]
        step = search.first * (found is not None) + np.arange(len(start_ns), dtype=np.int64)
        thread = thread if found is None or found.thread < 0 else found.thread
    return HostSteps(
        step=step,
        start_ns=start_ns,
        end_ns=end_ns,
        data_ns=np.full(len(step), -1, dtype=np.int64),
        # A step ends where the next one begins. If that one is not recorded, the end is not known.
        closed=np.append(np.diff(step) == 1, True),
        thread=thread,
        source=source,
    )


def _edges(events: EventTable, device: DeviceEvents) -> Int64:
    """Return when the first event begins and the last one ends, of the device if there are any, int64 [2]."""
    rows = device.row if len(device.row) else np.flatnonzero(~events.in_category("Trace", "overhead"))
    if not len(rows):
        return np.zeros(2, dtype=np.int64)
    return np.array([events.start_ns[rows].min(), events.end_ns[rows].max()], dtype=np.int64)


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


def step_thread(events: EventTable) -> int:
    """Return the track of the steps' spans, else of the optimizer, else that with the most operators, or -1.

    Those of a backward pass count only if there are no others: autograd has threads of its own.
    """
    spans, _ = _profiler_steps(events)
    if not len(spans):
        spans = optimizer_spans(events)
    if len(spans):
        return int(events.track[spans[0]])
    rows = np.flatnonzero(events.in_category("cpu_op"))
    if not len(rows):
        return -1
    node = backward_operators(events)
    inside = np.zeros(len(rows), dtype=np.bool_)
    for track in events.tracks_of(node).tolist():
        here = events.track[rows] == track
        backward = Intervals.of_events(events, node & (events.track == track))
        inside[here] = backward.covers(events.start_ns[rows[here]])
    rows = rows if inside.all() else rows[~inside]
    keys = (events.track[rows], events.start_ns[rows], events.duration_ns[rows], events.name[rows])
    tracks = np.unique(np.stack(keys), axis=1)[0]  # a duplicated event counts once
    count = np.bincount(tracks)
    most = np.flatnonzero(count == count.max()).tolist()
    return int(min(most, key=lambda i: (str(events.tracks[i].pid).zfill(20), str(events.tracks[i].tid).zfill(20))))
