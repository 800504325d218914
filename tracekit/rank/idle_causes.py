"""Why a rank was idle: what its host did while nothing ran, or what was queued.

Each moment at which the rank neither computes, communicates nor copies has one cause. The rules are those of
docs/definitions.md, "Idle time". Calls of the host explain why its device has nothing to do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tracekit.model.events import ROUNDED_NS, Bool, EventTable, Int64
from tracekit.model.intervals import EMPTY, Intervals
from tracekit.model.spans import GARBAGE_COLLECTION_SPAN, WAIT_SPAN
from tracekit.rank.kernel_launches import RUNTIME_CATEGORIES, DeviceEvents, graph_captures
from tracekit.rank.lanes import Lanes
from tracekit.rank.pauses import checkpoint_calls
from tracekit.rank.recorded_steps import RecordedSteps
from tracekit.rank.segments import loading_times

IDLE_CAUSES = (
    "host_bound",
    "kernel_gap",
    "synchronisation",
    "data",
    "checkpoint",
    "logging",
    "graph_capture",
    "allocator",
    "garbage_collection",
    "host_compute",
    "between_steps",
    "other",
)
"""host_bound: nothing was queued, as the host launched too late. kernel_gap: work was queued. host_compute: an operator
computed on the host.
"""

_LATENCY_NS = 5_000  # from a launch to the start on an idle device, if the trace does not show it
_LARGEST_LATENCY_NS = 20_000
# Gaps between kernels took up to 18 us on V100, A100, B200 and MI300X. Longer than this, something held the device up
# that is not recorded: kernels that are missing, another process, a signal of a peer.
_HELD_UP_NS = 100_000
_STALL_NS = 200_000  # a host that is not heard of for so long does something else than launching
_COMMUNICATES = ("c10d::", "_c10d_functional::", "c10d_functional::")
_NEVER_NS = np.iinfo(np.int64).max
_NEIGHBOURS = 256  # rows that are looked at together

_SYNCHRONISES = re.compile(r"\w*Synchronize|(?:cuda|hip)(?:Memcpy|MemcpyWithStream)")
_COPIES = re.compile(r"(?:cuda|hip|cu)Memcpy\w*")
# Of the runtime and of the driver, with virtual memory (expandable segments) and pinned memory of the host.
_ALLOCATES = re.compile(
    r"(?:cuda|hip)(?:Malloc|Free|HostAlloc|HostMalloc|HostFree|HostRegister|HostUnregister|MemPool)\w*|"
    r"(?:cu|hip)Mem(?:Alloc|Free|HostAlloc|Create|Release|Map|Unmap|SetAccess|AddressReserve|AddressFree)\w*"
)
_TORCH_COLLECTION = "Python GC"  # torch's own event, with record_python_gc_info
_BLOCKS_NS = 20_000  # a shorter copy call may have returned before its copy ended


def idle_by_cause(recorded: RecordedSteps) -> Mapping[str, Intervals]:
    """Return the idle time of each of `IDLE_CAUSES`, on the rank's wall clock.

    The sets are disjoint, and their union is `lanes.idle`: from the first step window to the end of the last.
    """
    trace, lanes = recorded.trace, recorded.lanes
    events = trace.events
    threads = recorded.once(host_threads)
    left = lanes.idle
    causes, behind = dict.fromkeys(IDLE_CAUSES, EMPTY), EMPTY
    if lanes.unrecorded is not None:
        return causes | {"other": left}

    def take(cause: str, time: Intervals) -> None:
        nonlocal left
        found = left & time if len(time) else EMPTY
        if len(found):
            causes[cause] = causes[cause] | found if len(causes[cause]) else found
            left = left - found

    if lanes.device == "gpu":
        queued, left = left & recorded.once(_queued), recorded.once(_unqueued)
        is_gap = queued.duration_ns < _HELD_UP_NS
        causes["kernel_gap"] = Intervals(queued.start_ns[is_gap], queued.end_ns[is_gap])
        causes["other"] = Intervals(queued.start_ns[~is_gap], queued.end_ns[~is_gap])
        take("other", _before_unlinked(events, lanes))
    take("garbage_collection", garbage_collections(events))
    take("other", Intervals.of_events(events, events.in_category("overhead")))
    take("graph_capture", graph_captures(events))
    take("allocator", allocations(events, threads))
    take("checkpoint", checkpoints(events, threads))
    take("logging", recorded.phases.pauses.logging)
    take("data", recorded.once(loading_times))
    if lanes.device == "gpu":
        found = recorded.once(idle_behind_calls)
        take("synchronisation", Intervals.union_of(found.start_ns[found.within], found.end_ns[found.within]))
        behind = Intervals.union_of(found.start_ns[~found.within], found.end_ns[~found.within])
        take("host_compute", _host_compute(recorded, left))
    take("other", _waits(recorded))
    take("between_steps", _between_steps(recorded))
    behind = behind & left
    if len(behind):
        take("synchronisation", behind - _stalls(recorded, behind))
    causes["host_bound"] = left
    return causes


def host_threads(recorded: RecordedSteps) -> Int64:
    """Return the tracks on which the rank's host works: of the step, of autograd, and those that launch compute."""
    lanes = recorded.lanes
    launches = lanes.device_events.launch_row[lanes.computes & lanes.device_events.linked]
    return np.union1d(lanes.threads, recorded.trace.events.tracks_of(launches)).astype(np.int64)


def synchronising_calls(recorded: RecordedSteps) -> Synchronisations:
    """Return the calls with which the rank's host waited for its device."""
    return synchronisations(recorded.trace.events, recorded.lanes.device_events, recorded.once(host_threads))


def _queued(recorded: RecordedSteps) -> Intervals:
    """Return when a kernel or copy was queued: launched, and not begun although it could have.

    From the end of a launch to the start on an idle device some microseconds pass. They belong to the host: had it
    launched earlier, nobody would notice them.
    """
    events, device = recorded.trace.events, recorded.lanes.device_events
    known = device.linked | device.before_recording
    device = device.rows(known)
    start_ns, end_ns, early = events.start_ns[device.row], events.end_ns[device.row], device.before_recording
    launched_ns = np.minimum(events.end_ns[device.launch_row], start_ns)
    launched_ns[early] = device.launch_ns[early]
    order = np.lexsort((start_ns, launched_ns))
    start_ns, end_ns, launched_ns = start_ns[order], end_ns[order], launched_ns[order]
    before_ns = np.append(-_NEVER_NS, np.maximum.accumulate(end_ns)[:-1])
    on_idle = launched_ns >= before_ns
    latency_ns = start_ns[on_idle] - launched_ns[on_idle]
    usual_ns = min(int(np.median(latency_ns)) if len(latency_ns) else _LATENCY_NS, _LARGEST_LATENCY_NS)
    from_ns = np.where(launched_ns < -usual_ns, launched_ns, launched_ns + usual_ns)
    from_ns[on_idle & (start_ns - launched_ns <= _LARGEST_LATENCY_NS)] = _NEVER_NS
    return Intervals.union_of(from_ns, start_ns)


def _unqueued(recorded: RecordedSteps) -> Intervals:
    """Return the idle time in which nothing was queued."""
    return recorded.lanes.idle - recorded.once(_queued)


def _before_unlinked(events: EventTable, lanes: Lanes) -> Intervals:
    """Return the idle time before device events whose launch is not recorded: they may have been queued or not."""
    device = lanes.device_events
    unlinked = ~device.linked & ~device.before_recording
    start_ns = events.start_ns[device.row[unlinked]]
    idle = lanes.idle
    ends_idle = np.isin(idle.end_ns, start_ns)
    return Intervals(idle.start_ns[ends_idle], idle.end_ns[ends_idle])


@dataclass(frozen=True, kw_only=True, eq=False)
class IdleBehindCalls:
    """n disjoint intervals of idle time with nothing queued, within or behind calls that waited for the device.

    Attributes:
        start_ns: int64 [n].
        end_ns: int64 [n].
        call: the row of the call that explains each in the event table, int64 [n].
        within: whether the host was still in the call, bool [n].
    """

    start_ns: Int64
    end_ns: Int64
    call: Int64
    within: Bool


def idle_behind_calls(recorded: RecordedSteps) -> IdleBehindCalls:
    """Return the idle time with nothing queued that would not be if the host had not waited for its device.

    While it waited it launched nothing, though the device was busy. Without the call it would have launched everything
    that follows earlier by as much. So that much of the idle time behind the call is the call's, and all within it.
    """
    calls, unqueued = recorded.once(synchronising_calls), recorded.once(_unqueued)
    if not len(calls.row) or not len(unqueued):
        none = np.empty(0, dtype=np.int64)
        return IdleBehindCalls(start_ns=none, end_ns=none, call=none, within=none > 0)
    in_calls = Intervals.union_of(calls.begin_ns, calls.until_ns)
    # A call allows idle time up to what there had been by its end and what it waited: both count idle time so far.
    waited_ns = recorded.lanes.busy.covered_ns(calls.begin_ns, calls.until_ns)
    allowed_ns = unqueued.covered_before(calls.until_ns) + waited_ns
    most_ns = np.maximum.accumulate(allowed_ns)
    allows_most = np.maximum.accumulate(np.where(allowed_ns == most_ns, np.arange(len(most_ns)), 0))
    until_next_ns = np.append(calls.until_ns[1:], _NEVER_NS)
    behind = Intervals.union_of(calls.until_ns, np.minimum(unqueued.when_covered(most_ns), until_next_ns))
    start_ns, end_ns = _cut(unqueued & (in_calls | behind), np.concatenate((calls.begin_ns, calls.until_ns)))
    within = in_calls.covers(start_ns)
    last = np.searchsorted(calls.until_ns, start_ns, side="right") - 1
    explains = np.where(within, np.minimum(last + 1, len(calls.row) - 1), allows_most[np.maximum(last, 0)])
    return IdleBehindCalls(start_ns=start_ns, end_ns=end_ns, call=calls.row[explains], within=within)


def _cut(time: Intervals, at_ns: Int64) -> tuple[Int64, Int64]:
    """Return some time in intervals that do not go on over any of the times `at_ns`, as starts and ends."""
    edges_ns = np.sort(np.concatenate((time.start_ns, time.end_ns, at_ns)))
    inside = time.covers(edges_ns[:-1]) & (edges_ns[1:] > edges_ns[:-1])
    return edges_ns[:-1][inside], edges_ns[1:][inside]


def _host_compute(recorded: RecordedSteps, around: Intervals) -> Intervals:
    """Return when operators of the rank's host computed there: they took long, and launched or waited for nothing."""
    events, threads = recorded.trace.events, recorded.once(host_threads)
    is_long = (events.duration_ns >= _STALL_NS) & events.on_tracks(threads)
    rows = np.flatnonzero(is_long & events.named(_may_compute))
    rows = rows[around.covered_ns(events.start_ns[rows], events.end_ns[rows]) > 0]
    found = EMPTY
    for thread in threads.tolist():
        calls_ns = np.sort(events.start_ns[events.in_category(*RUNTIME_CATEGORIES) & (events.track == thread)])
        here = rows[events.track[rows] == thread]
        first, stop = (np.searchsorted(calls_ns, times_ns[here]) for times_ns in (events.start_ns, events.end_ns))
        found |= Intervals.of_events(events, here[first == stop]) if len(calls_ns) else EMPTY
    return found


def _may_compute(name: str) -> bool:
    """Return whether what has this name is an operator of a library, or the step of an optimizer.

    Nodes of autograd may run Python.
    """
    return name.startswith("Optimizer.step#") or ("::" in name and not name.startswith((*_COMMUNICATES, "autograd::")))


def _stalls(recorded: RecordedSteps, around: Intervals) -> Intervals:
    """Return when nothing is recorded of the host's threads for long: no operator begins or ends, and no call.

    around: only intervals that overlap it are wanted; not empty.
    """
    events, idle = recorded.trace.events, recorded.lanes.idle
    threads = recorded.once(host_threads)
    near = Intervals.union_of(around.start_ns - _STALL_NS, around.end_ns + _STALL_NS)
    rows = _rows_near(events, near)
    rows = rows[events.on_tracks(threads)[rows] & ~events.in_category("python_function", "gpu_user_annotation")[rows]]
    edges_ns = np.concatenate((events.start_ns[rows], events.end_ns[rows], idle.start_ns[:1], idle.end_ns[-1:]))
    start_ns, end_ns = _cut(near, edges_ns[near.covers(edges_ns)])
    is_stall = end_ns - start_ns >= _STALL_NS
    return Intervals(start_ns[is_stall], end_ns[is_stall])


def _rows_near(events: EventTable, time: Intervals) -> Int64:
    """Return all events during some time, and more, without a look at each: rows are nearly in order of time."""
    first = np.arange(0, len(events), _NEIGHBOURS)
    begin_ns, end_ns = np.minimum.reduceat(events.start_ns, first), np.maximum.reduceat(events.end_ns, first)
    overlap = time.covered_ns(begin_ns, end_ns + 1) > 0
    rows = (first[overlap][:, None] + np.arange(_NEIGHBOURS)).reshape(-1)
    return rows[rows < len(events)]


def _waits(recorded: RecordedSteps) -> Intervals:
    """Return when the host was blocked in communication, or in remote calls.

    For work of a device it does not block, unless it takes long: then it waits for other processes.
    """
    events, lanes, threads = recorded.trace.events, recorded.lanes, recorded.once(host_threads)
    if lanes.device == "gpu":
        waits = events.named(WAIT_SPAN.__eq__) & (events.duration_ns >= _STALL_NS)
    else:
        waits = events.named(lambda name: name == WAIT_SPAN or name.startswith(_COMMUNICATES))
    blocked = Intervals.of_events(events, waits & events.on_tracks(threads))
    metadata = recorded.trace.header.metadata
    remote = () if metadata is None or metadata.rpc is None else metadata.rpc.waits
    times_ns = np.array([(wait.start_ns, wait.end_ns) for wait in remote], dtype=np.int64).reshape(-1, 2)
    return blocked | Intervals.union_of(times_ns[:, 0], times_ns[:, 1])


def _between_steps(recorded: RecordedSteps) -> Intervals:
    """Return when the host was outside of the decorated function: from its return to its next call."""
    metadata = recorded.trace.header.metadata
    steps = () if metadata is None else metadata.steps
    pairs = [(s.returned_ns, s.end_ns) for s in steps if s.returned_ns is not None and s.end_ns is not None]
    times_ns = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return Intervals.union_of(times_ns[:, 0], times_ns[:, 1])


@dataclass(frozen=True, kw_only=True, eq=False)
class Synchronisations:
    """n calls that return when the device is done, in order of their end.

    Attributes:
        row: in the event table, int64 [n].
        begin_ns: int64 [n].
        until_ns: int64 [n].
    """

    row: Int64
    begin_ns: Int64
    until_ns: Int64


def synchronisations(events: EventTable, device: DeviceEvents, threads: Int64) -> Synchronisations:
    """Return the synchronising calls on these tracks.

    A copy call synchronises if it is named so (`cudaMemcpy`), or if it took long and returned after its copy had ended:
    `cudaMemcpyAsync` from or to memory that is not pinned does.
    """
    named = events.named(lambda name: _SYNCHRONISES.fullmatch(name) is not None)
    rows = np.flatnonzero(named & events.in_category(*RUNTIME_CATEGORIES))
    copies = np.flatnonzero(device.linked & ~device.is_kernel)
    calls = device.launch_row[copies]
    blocks = events.duration_ns[calls] >= _BLOCKS_NS
    blocks &= events.end_ns[calls] + ROUNDED_NS >= events.end_ns[device.row[copies]]
    calls = calls[blocks]
    is_copy = events.named(lambda name: _COPIES.fullmatch(name) is not None)
    rows = np.union1d(rows, calls[is_copy[calls]]).astype(np.int64)
    rows = rows[events.on_tracks(threads)[rows]]
    rows = rows[np.argsort(events.end_ns[rows], kind="stable")]
    return Synchronisations(row=rows, begin_ns=events.start_ns[rows], until_ns=events.end_ns[rows])


def allocations(events: EventTable, threads: Int64) -> Intervals:
    """Return when these tracks allocated or freed memory of the device, or pinned memory of the host."""
    named = events.named(lambda name: _ALLOCATES.fullmatch(name) is not None)
    return Intervals.of_events(events, named & events.in_category(*RUNTIME_CATEGORIES) & events.on_tracks(threads))


def garbage_collections(events: EventTable) -> Intervals:
    """Return when Python collected garbage. It stops all threads, whichever it runs on."""
    return Intervals.of_events(events, events.named((GARBAGE_COLLECTION_SPAN, _TORCH_COLLECTION).__contains__))


def checkpoints(events: EventTable, threads: Int64) -> Intervals:
    """Return when these tracks saved or loaded a checkpoint."""
    calls = checkpoint_calls(events, threads)
    return Intervals.union_of(calls.start_ns, calls.end_ns)
