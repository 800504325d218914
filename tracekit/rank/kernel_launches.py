"""Which host call launched each device event, and when.

The launch decides only to which step, phase or operator an event belongs. Sums of time never depend on it. But no
kernel begins before its launch. Where kernels seem to, Kineto has converted the times of the device wrongly
(kineto#919), and all of them are later by at least the largest such lead.

From the launches follows when the device ran what the host launched in a span of host time (`device_extent`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np

from tracekit.model.columnar import Columnar
from tracekit.model.events import ABSENT, Bool, EventTable, Int32, Int64
from tracekit.model.intervals import Intervals

_TOLERATED_LEAD_NS = 10_000
_WRONG_LINKS = 0.01  # the share of kernels that may be linked to a wrong launch
# Dependent launches let kernels of a stream overlap by some microseconds; wrong ends do by 20 ms (TraceLens#669).
_OVERLAP_NS = 1_000_000
_OVERLAPPING_SHARE = 0.05  # of kernels: where more overlap, their tracks are no streams

DEVICE_CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset")
RUNTIME_CATEGORIES = ("cuda_runtime", "cuda_driver", "xpu_runtime", "hip_runtime")
# What is launched while a graph is captured runs only when the graph is launched.
_BEGINS_CAPTURE = re.compile(r"StreamBeginCapture")
_ENDS_CAPTURE = re.compile(r"StreamEndCapture")
BEFORE_RECORDING = np.iinfo(np.int64).min
"""`launch_ns` of a device event that was launched before the recording began."""


@dataclass(frozen=True, kw_only=True, eq=False)
class DeviceEvents(Columnar):
    """m device events.

    Attributes:
        row: in the event table, int64 [m].
        launch_ns: when each was launched, int64 [m]; of unlinked events the latest time at which that may have been.
        launch_row: of the launching call in the event table, or -1, int64 [m].
        is_kernel: False for copies, bool [m].
        is_ambiguous: whether several calls have its correlation id, bool [m].
    """

    row: Int64
    launch_ns: Int64
    launch_row: Int64
    is_kernel: Bool
    is_ambiguous: Bool

    @property
    def linked(self) -> Bool:
        """Return a mask [m] of the events whose launch was found."""
        return np.not_equal(self.launch_row, ABSENT)

    @property
    def before_recording(self) -> Bool:
        """Return a mask [m] of the events that were launched before the recording began."""
        return np.equal(self.launch_ns, BEFORE_RECORDING)


def device_events(events: EventTable) -> DeviceEvents:
    """Return the device events, each linked to its launch by the correlation id.

    An unlinked event that starts before the first linked one of its stream was launched before the recording. Any other
    unlinked event belongs to the window in which it starts (`StepWindows.index_of_device`). Its `launch_ns` is its
    start, or the launch of a later event of its stream if that is earlier: a stream runs in order of launches.
    """
    row = events.each_once(events.in_category(*DEVICE_CATEGORIES))
    launch_row, is_ambiguous = _launch_rows(events, row)
    linked = launch_row != ABSENT
    launch_ns = np.where(linked, events.start_ns[launch_row], events.start_ns[row])
    if not linked.all():
        latest_ns = np.where(linked & ~is_ambiguous, launch_ns, np.iinfo(np.int64).max)
        latest_ns = _next_launch_ns(events.track[row], latest_ns, ~linked)
        launch_ns[~linked] = np.minimum(launch_ns, latest_ns)[~linked]
        launch_ns[_began_before_first_linked(events, row, linked)] = BEFORE_RECORDING
    is_kernel = events.in_category("kernel")[row]
    return DeviceEvents(
        row=row, launch_ns=launch_ns, launch_row=launch_row, is_kernel=is_kernel, is_ambiguous=is_ambiguous
    )


def _next_launch_ns(streams: Int32, launch_ns: Int64, which: Bool) -> Int64:
    """Return int64 [m]: the earliest launch of an event and those after it on its stream, for the streams of `which`.

    The events are in order of time.
    """
    earliest_ns = launch_ns.copy()
    for stream in np.flatnonzero(np.bincount(streams[which])).tolist():
        on_stream = np.flatnonzero(streams == stream)
        earliest_ns[on_stream] = np.minimum.accumulate(launch_ns[on_stream][::-1])[::-1]
    return earliest_ns


def _began_before_first_linked(events: EventTable, row: Int64, linked: Bool) -> Bool:
    """Return a mask [m] of the unlinked device events that start before the first linked one of their stream."""
    streams, start_ns = events.track[row], events.start_ns[row]
    first_linked_ns = np.full(len(events.tracks), np.iinfo(np.int64).max, dtype=np.int64)
    np.minimum.at(first_linked_ns, streams[linked], start_ns[linked])
    any_linked = first_linked_ns != np.iinfo(np.int64).max
    return np.asarray(~linked & any_linked[streams] & (start_ns < first_linked_ns[streams]))


def _launch_rows(events: EventTable, device_row: Int64) -> tuple[Int64, Bool]:
    """Return int64 [m]: the row of the last runtime call with the event's correlation id that began before it, or
    ABSENT; and bool [m]: whether there are several such calls.
    """
    runtime = np.flatnonzero(events.in_category(*RUNTIME_CATEGORIES) & (events.correlation != ABSENT))
    runtime = runtime[np.argsort(events.correlation[runtime], kind="stable")]
    ids = events.correlation[runtime]
    wanted_ids = events.correlation[device_row]
    first = np.searchsorted(ids, wanted_ids, side="left")
    padded = np.append(ids, (ABSENT, ABSENT))
    known = (padded[first] == wanted_ids) & (wanted_ids != ABSENT)
    result = np.where(known, np.append(runtime, ABSENT)[first], ABSENT)
    is_ambiguous = np.zeros(len(device_row), dtype=np.bool_)
    shared = np.flatnonzero(known & (padded[first + 1] == wanted_ids))  # rare: of some calls one is after the event
    shared = shared[np.argsort(wanted_ids[shared], kind="stable")]
    for alike in np.split(shared, np.flatnonzero(np.diff(wanted_ids[shared])) + 1) if len(shared) else ():
        calls = runtime[first[alike[0]] : np.searchsorted(ids, wanted_ids[alike[0]], side="right")]
        calls = calls[np.argsort(events.start_ns[calls], kind="stable")]
        index = np.searchsorted(events.start_ns[calls], events.start_ns[device_row[alike]], side="right") - 1
        result[alike] = calls[np.maximum(index, 0)]
        is_ambiguous[alike] = np.ptp(events.start_ns[calls]) > 0
    return result, is_ambiguous


def on_host_clock(events: EventTable) -> tuple[EventTable, DeviceEvents, int]:
    """Return the events on the host's clock, the device events among them, and by how many ns these were shifted."""
    device = device_events(events)
    linked = device.linked
    lead_ns = (device.launch_ns - events.start_ns[device.row])[linked]
    if not len(lead_ns) or lead_ns.max() <= _TOLERATED_LEAD_NS:
        return events, device, 0
    lead_ns = lead_ns[~device.is_ambiguous[linked]]
    if not len(lead_ns) or (lead_ns > _TOLERATED_LEAD_NS).mean() <= _WRONG_LINKS:
        return events, device, 0
    behind_ns = int(np.sort(lead_ns)[-1 - int(_WRONG_LINKS * len(lead_ns))])
    on_device = events.in_category(*DEVICE_CATEGORIES, "gpu_user_annotation")
    shifted = replace(events, start_ns=events.start_ns + behind_ns * on_device)
    return shifted, device_events(shifted), behind_ns


def without_overlaps(events: EventTable, device: DeviceEvents) -> tuple[EventTable, int]:
    """Return the events, of which kernels end when the next kernel of their stream begins, and how many end later.

    Kernels of a stream run one after the other, except for those of one graph.
    """
    kernel = np.flatnonzero(device.is_kernel)
    row = device.row[kernel]
    order = np.lexsort((events.start_ns[row], events.track[row]))
    row, launch = row[order], device.launch_row[kernel][order]
    over_ns = events.end_ns[row][:-1] - events.start_ns[row][1:]
    of_one_graph = (launch[:-1] == launch[1:]) & (launch[:-1] != ABSENT)
    wrong = (over_ns > _OVERLAP_NS) & (events.track[row][:-1] == events.track[row][1:]) & ~of_one_graph
    if not wrong.any() or wrong.sum() > _OVERLAPPING_SHARE * len(row):
        return events, 0
    duration_ns = events.duration_ns.copy()
    duration_ns[row[:-1][wrong]] -= over_ns[wrong]
    return replace(events, duration_ns=duration_ns), int(wrong.sum())


def device_extent(
    events: EventTable, rows: Int64, first: Int64, stop: Int64, start_ns: Int64, end_ns: Int64
) -> tuple[Int64, Int64]:
    """Return the first start and the last end on the device for k spans of host time, int64 [k] each.

    Span i launched the events `rows[first[i]:stop[i]]` of the table. A span that launched nothing keeps `start_ns[i]`
    and `end_ns[i]`.
    """
    start_ns, end_ns = start_ns.copy(), end_ns.copy()
    some = np.flatnonzero(stop > first)
    if len(some):
        edges = np.stack((first[some], stop[some]), axis=1).ravel()
        # `reduceat` accepts no edge behind the last element. Every second result is of the events between two spans.
        begun_ns = np.append(events.start_ns[rows], np.iinfo(np.int64).max)
        ended_ns = np.append(events.end_ns[rows], np.iinfo(np.int64).min)
        start_ns[some] = np.minimum.reduceat(begun_ns, edges)[::2]
        end_ns[some] = np.maximum.reduceat(ended_ns, edges)[::2]
    return start_ns, end_ns


def graph_captures(events: EventTable) -> Intervals:
    """Return when the host captured a graph: what it launches then does not run. One may last over an edge."""
    calls = events.in_category(*RUNTIME_CATEGORIES)
    begins = np.sort(events.start_ns[calls & events.named(lambda name: _BEGINS_CAPTURE.search(name) is not None)])
    ends = np.sort(events.end_ns[calls & events.named(lambda name: _ENDS_CAPTURE.search(name) is not None)])
    open_at_end = np.searchsorted(begins, ends, side="right") - np.arange(1, len(ends) + 1)
    begins = np.append(np.full(max(0, -int(open_at_end.min(initial=0))), events.start_ns.min(initial=0)), begins)
    ends = np.append(ends, np.full(len(begins) - len(ends), events.end_ns.max(initial=0)))
    return Intervals.union_of(begins, ends)
