"""Which time each step of a recording takes, as contiguous windows that hold for all lanes of the rank.

On a CPU rank a window reaches from the start of a step to the start of the next. On a GPU rank the host runs ahead:
step k begins when the last compute kernel that was launched before its host start has ended (docs/definitions.md,
"Steps").
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tracekit.analysis.events.kernel_launches import DEVICE_CATEGORIES, RUNTIME_CATEGORIES, DeviceEvents
from tracekit.analysis.events.missing_kernels import KernelLaunches
from tracekit.analysis.events.phase_evidence import data_loading
from tracekit.analysis.timeline.completeness.lost_operators import may_lack_operators
from tracekit.analysis.timeline.completeness.overrun import overrun_of
from tracekit.analysis.timeline.host_steps import HostSteps, host_steps
from tracekit.model.events import Bool, DecodedTrace, EventTable, Int32, Int64
from tracekit.model.intervals import Intervals

__all__ = ["StepWindows", "device_starts", "step_windows"]


@dataclass(frozen=True, kw_only=True, eq=False)
class StepWindows:
    """s windows in order of time.

    Attributes:
        step: numbers as recorded, int64 [s].
        start_ns: int64 [s].
        end_ns: the next start, int64 [s].
        host_start_ns: when the host began the step, int64 [s].
        host_end_ns: the end of the last step on the host.
        data_ns: time in the data loader, or -1, int64 [s].
        complete: bool [s].
        lost: so many kernels launched in it are missing that its time on the device is not known, bool [s].
        without_compute: of the lost ones those whose operators ran, and whose compute kernels are missing with their
            launches, bool [s].
        lacking: an operator may have run in it that cannot be read, bool [s].
        thread: the track of the steps' spans, or -1.
        source: "steps" (tracekit's metadata), "spans" (ProfilerStep) or "recording" (no steps: one window).
        contradiction: why the steps cannot be those of one process on one clock; None if they can.
        cut: in a file that was cut off, why steps are whole, or why none is; None in a whole file.
        overrun_ns: by how much events end after the recording, where that proves a time wrong; else 0.
    """

    step: Int64
    start_ns: Int64
    end_ns: Int64
    host_start_ns: Int64
    host_end_ns: int
    data_ns: Int64
    complete: Bool
    lost: Bool
    without_compute: Bool
    lacking: Bool
    thread: int
    source: str
    contradiction: str | None = None
    cut: str | None = None
    overrun_ns: int = 0

    def __len__(self) -> int:
        return len(self.step)

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
    launches: KernelLaunches,
    *,
    whole: bool = False,
) -> StepWindows:
    """Return the windows of a trace. With `whole`, steps are ignored.

    `computes` says which device events are compute kernels, bool [m]. Lost records are not looked for here
    (`timeline.completeness.lost_records`).
    """
    events = trace.events
    host = host_steps(trace, whole=whole)
    on_gpu = bool(device.is_kernel.any())
    start_ns, host_end_ns = host.start_ns, int(host.end_ns[-1])
    last_end_ns = host_end_ns
    if on_gpu and host.source != "recording":
        start_ns = device_starts(events, host.start_ns, device, computes)
        # an event without known launch may lie in the last host window and yet before the last window
        known = device.linked | device.before_recording
        begin_ns = np.where(known, host.start_ns[-1], start_ns[-1])
        at_ns = np.where(known, device.launch_ns, events.start_ns[device.row])
        in_last = (at_ns >= begin_ns) & (at_ns < host_end_ns)
        if in_last.any():
            last_end_ns = max(last_end_ns, int(events.end_ns[device.row[in_last]].max()))
    end_ns = np.append(start_ns[1:], last_end_ns)
    windows = StepWindows(
        step=host.step,
        start_ns=start_ns,
        end_ns=np.maximum(end_ns, start_ns),
        host_start_ns=host.start_ns,
        host_end_ns=host_end_ns,
        data_ns=_data_ns(events, host),
        complete=host.closed & (end_ns > start_ns),
        lost=np.zeros(len(host.step), dtype=np.bool_),
        without_compute=np.zeros(len(host.step), dtype=np.bool_),
        lacking=np.zeros(len(host.step), dtype=np.bool_),
        thread=host.thread,
        source=host.source,
        contradiction=host.contradiction,
    )
    complete = windows.complete
    if not trace.complete:
        intact, evidence = _before_the_cut(trace, windows, device, launches)
        complete = complete & intact
        windows = replace(windows, cut=evidence)
    if on_gpu and device.linked.any():
        with_device_events = windows.index_of_device(device, events.start_ns[device.row])
        complete = complete & (np.bincount(with_device_events + 1, minlength=len(windows) + 1)[1:] > 0)
    if not on_gpu:
        lacking = complete & may_lack_operators(windows.start_ns, windows.end_ns, trace.lost_ns)
        complete, windows = complete & ~lacking, replace(windows, lacking=lacking)
    overrun = overrun_of(events, host)
    if overrun is not None:
        complete = complete & (windows.end_ns <= overrun.from_ns)
        windows = replace(windows, overrun_ns=overrun.by_ns)
    return replace(windows, complete=complete)


def _data_ns(events: EventTable, host: HostSteps) -> Int64:
    """Return int64 [s]: time in spans of data loaders on the step's thread; without any, what the capture measured."""
    loading = data_loading(events, host.thread)
    if not len(loading):
        return host.data_ns
    ends_ns = np.append(host.start_ns[1:], host.end_ns[-1])
    windows = zip(host.start_ns.tolist(), ends_ns.tolist(), strict=True)
    return np.array([loading.clip(begin, end).len_ns for begin, end in windows], dtype=np.int64)


def _before_the_cut(
    trace: DecodedTrace, windows: StepWindows, device: DeviceEvents, launches: KernelLaunches
) -> tuple[Bool, str]:
    """Return a mask [s] of the windows that are whole in a file that was cut off, and what shows it.

    Kineto writes operators first, then what the device did, then one span of the profiler itself. So a cut removes
    whole tracks from every step, and only what the order of the events proves to be whole counts.
    """
    events = trace.events
    whole: Bool = np.zeros(len(windows), dtype=np.bool_)
    if not trace.intact:
        return whole, "any part of the file may be wrong"
    if not len(events):
        return whole, "nothing is in it"
    if bool(events.in_category("Trace")[-1]) and len(events) > 1:
        return np.logical_not(whole), "the profiler's last span is in it, so that no event is missing"
    if not device.is_kernel.any() and _lacks_spans_of_collectives(events):
        return whole, "the spans of its collectives are not in it"
    if _in_order_of_time(events):
        until_ns = int(events.start_ns[-1])
        evidence = "its events are in order of time"
    elif device.is_kernel.any() and (closed_ns := _all_tracks_until_ns(events, device)) is not None:
        until_ns = closed_ns
        evidence = "all its tracks go on behind the steps that count"
    else:
        return whole, "it has one track after the other, so that any step may lack events"
    whole[:-1] = windows.end_ns[:-1] <= until_ns
    if launches.missing.any():
        first_ns = launches.start_ns[launches.missing].min()
        whole &= np.append(windows.host_start_ns[1:], windows.host_end_ns) <= first_ns
    return whole, evidence


def _lacks_spans_of_collectives(events: EventTable) -> bool:
    """Return whether collectives were issued and none is recorded: Kineto writes Gloo's threads behind all others."""
    issued = events.named(lambda name: name.startswith("c10d::"))
    return bool(issued.any()) and not events.named(lambda name: name.startswith("gloo:")).any()


def _all_tracks_until_ns(events: EventTable, device: DeviceEvents) -> int | None:
    """Return until when each track is recorded, if each is in order of time and none follows another as a whole.

    The operators of a thread and its calls of the device's runtime count as two tracks, as Kineto writes them apart.
    """
    calls = events.in_category(*RUNTIME_CATEGORIES)
    kept = np.flatnonzero(calls | events.in_category("cpu_op", *DEVICE_CATEGORIES))
    track = events.track[kept] + len(events.tracks) * calls[kept]
    if not len(kept) or not _interleaves(track):
        return None
    order = np.argsort(track, kind="stable")
    start_ns, track = events.start_ns[kept][order], track[order]
    last = np.append(np.diff(track) > 0, True)
    if (np.diff(start_ns)[~last[:-1]] < 0).any():
        return None
    # The copies of a stream of which nothing is recorded yet.
    copies = np.flatnonzero(calls & events.named(lambda name: "Memcpy" in name))
    missing = copies[~np.isin(events.correlation[copies], events.correlation[device.row])]
    return int(min(start_ns[last].min(), events.start_ns[missing].min(initial=np.iinfo(np.int64).max)))


def _in_order_of_time(events: EventTable) -> bool:
    """Return whether events follow each other in time across tracks."""
    return bool(len(events) and (np.diff(events.start_ns) >= 0).all()) and _interleaves(events.track)


def _interleaves(track: Int32 | Int64) -> bool:
    """Return whether events change between tracks (int32 or int64 [n]) more often than one track after the other."""
    changes = np.count_nonzero(np.diff(track))
    return bool(changes >= np.count_nonzero(np.bincount(track)))


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
