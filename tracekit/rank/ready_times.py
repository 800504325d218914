"""When a rank was ready for its communication, which may be long before the kernel starts, and when it waited for it.

A kernel of communication on a GPU rank starts when three things are over: its launch, the device work that it depends
on, and the operation before it in its queue. A queue is a stream, or a communicator: NCCL runs one operation of a
communicator at a time, whatever the streams. What a kernel depends on is not recorded: `ProcessGroupNCCL` lets its
stream wait for an event on the stream that is current at the call, and a trace does not say which stream that is.

    compute stream   | gradients of bucket 0 | gradients of bucket 1 |
    its stream                               |  bucket 0: waits for a slower rank  | bucket 1 |
                                                                     ^ ready         ^ starts

A kernel that did not queue shows when the rank was ready: at its start. Such kernels also tell on what their kind
depends: on the work of a stream, or on another group's communication. A dependency must have ended when the kernel
starts; up to 2 % of the kernels may contradict that. Of these dependencies, launched before the kernel, the one is
taken that ended closest to the starts. A kernel that queued was ready when that had ended and the kernel was launched.

Some kernels do not queue, but depend on the one before them, and are ready when it ends. That is so on a stream that
computes as well, and where the job waits for each operation before it launches the next.

If nothing computed when a communication event ended, the rank had waited for it. The wait began with the last of three:
the end of its last compute, the issue of the event, or the beginning of a recorded wait.

On a CPU rank the thread that waited goes on before the thread that communicates has recorded the end of the span. What
computes in the last moment of a span was released by it:

    communicates  |================ all_reduce =================|
    computes    |====|                                        |copy|
                     |---------------- waits -------------------|

Sources: `ProcessGroupNCCL::syncStream`, `ProcessGroupNCCL::collective` and `WorkNCCL::synchronize` in
torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp; "Using multiple NCCL communicators concurrently" and "CUDA Stream
Semantics" in the NCCL user guide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tracekit.model.communication import KINDS
from tracekit.model.events import ABSENT, ROUNDED_NS, Bool, DecodedTrace, EventTable, Int64
from tracekit.model.intervals import Intervals
from tracekit.model.spans import WAIT_SPAN
from tracekit.rank.kernel_launches import BEFORE_RECORDING, RUNTIME_CATEGORIES
from tracekit.rank.lanes import Lanes
from tracekit.rank.recorded_steps import Waits
from tracekit.rank.recorded_waits import NEVER_NS, blocking_times, recorded_dependencies

# From the end of an operation to the start of the next one in its queue. RCCL takes up to 20 us, NCCL less than 10.
_NEXT_NS = 25_000
_MISSED_NS = 1_000_000  # an interval that a dependency leaves unexplained counts no more than this
_ALIKE_NS = 5_000  # dependencies that explain the starts equally well, up to this
_MISTAKEN = 0.02  # of the kernels may contradict a dependency, for records are not perfect
_COMPUTES = 0.2  # of the rank's work: a stream with so much of it is not one of communication
_NEVER = np.iinfo(np.int64).min // 2
_MESSAGES = tuple(KINDS.index(kind) for kind in ("send", "recv", "send_recv"))  # each pair has its communicator

_NEVER_AWAITED = tuple(KINDS.index(kind) for kind in ("peer_copy", "unclassified"))
# How long before the recorded end of a span of a CPU rank the thread that waits for it may go on: 0.2 ms were seen with
# as many ranks as cores, and a thread of a busy host may have to wait for its turn for longer. To record the end may
# need Python's interpreter lock, which a running thread keeps for 5 ms (sys.getswitchinterval): the end counts as
# recorded so late if the rank had idled for that long. Of a short span, a part. On a busy host the lock and the turn
# add up, to 8 ms and more: so late is an end before which the rank had idled for several times as long.
_RECORDED_LATE_NS = 1_000_000
_LOCKED_NS = 5_500_000
_RECORDED_LATE_PART = 10
_IDLED_TIMES = 4


@dataclass(frozen=True, kw_only=True, eq=False)
class ReadyTimes:
    """Of n communication events.

    Attributes:
        ready_ns: when the rank was ready, int64 [n]; never later than the start.
        queued_ns: the end of the operation before in the queue, for which a ready one waited, int64 [n]; else -1.
    """

    ready_ns: Int64
    queued_ns: Int64


@dataclass(frozen=True, kw_only=True, eq=False)
class _Launches:
    """m device events of a stream or group, in order of launch.

    Attributes:
        launch_ns: int64 [m], ascending.
        reach_ns: int64 [m], when each event had ended, and so all before it: they run one after another.
    """

    launch_ns: Int64
    reach_ns: Int64

    @classmethod
    def of(cls, launch_ns: Int64, end_ns: Int64) -> _Launches:
        order = np.lexsort((end_ns, launch_ns))  # what one launch of a graph runs may run at the same time
        return cls(launch_ns=launch_ns[order], reach_ns=end_ns[order])

    def last_before(self, time_ns: Int64) -> tuple[Int64, Int64]:
        """Return when the last event launched before each time was launched, and when it had ended: int64 [n] each."""
        if not len(self.launch_ns):
            return np.full(len(time_ns), _NEVER), np.full(len(time_ns), _NEVER)
        last = np.searchsorted(self.launch_ns, time_ns, side="left") - 1
        found, last = last >= 0, np.maximum(last, 0)
        return np.where(found, self.launch_ns[last], _NEVER), np.where(found, self.reach_ns[last], _NEVER)


def device_ready_times(events: EventTable, lanes: Lanes) -> ReadyTimes:
    """Return when a GPU rank was ready for each of its communication events, and what each queued behind."""
    communication = lanes.communication_events
    launch_ns, start_ns = communication.launch_ns, communication.start_ns
    stream = events.track[communication.row].astype(np.int64)
    of_group = (communication.group != ABSENT) & ~np.isin(communication.kind, _MESSAGES)
    communicator = np.where(of_group, communication.group, len(communication.groups) + stream)
    before_ns, launched_before_ns = _operations_before(lanes, (stream, communicator))
    queued = (start_ns - before_ns <= _NEXT_NS) & (launch_ns < before_ns) & _launched_alone(lanes)
    ready_ns = start_ns.copy()
    if queued.any():
        work = _work_of_streams(events, lanes)
        transfers = {
            number: _Launches.of(launch_ns[rows], communication.end_ns[rows])
            for number in np.unique(communicator).tolist()
            for rows in [communicator == number]
        }
        queued &= ~np.isin(stream, _computing_streams(events, lanes))
        launched = [*work.values(), *transfers.values()]
        queued[queued] = ~_awaited(events, launched, launched_before_ns[queued], launch_ns[queued])
        depends_ns = _dependencies(lanes, stream, communicator, queued, work, transfers)
        recorded_ns = recorded_dependencies(events, lanes)
        if recorded_ns is not None:
            known_ns = recorded_ns[lanes.communicates][queued]
            depends_ns = np.where(known_ns == NEVER_NS, depends_ns, known_ns)
        ready_ns[queued] = np.minimum(np.maximum(launch_ns[queued], depends_ns), start_ns[queued])
    queued &= ready_ns < before_ns
    return ReadyTimes(ready_ns=ready_ns, queued_ns=np.where(queued, before_ns, ABSENT))


def _operations_before(lanes: Lanes, queues: tuple[Int64, ...]) -> tuple[Int64, Int64]:
    """Return when the communication event before each one ended and was launched, int64 [n] each; far in the past
    without.

    queues: int64 [n] each, equal for events that run one after another. Of the events before in several queues, the
    last to end counts.
    """
    communication = lanes.communication_events
    ended_ns, launched_ns = np.full((2, len(communication)), _NEVER)
    for queue in queues:
        order = np.lexsort((communication.end_ns, communication.start_ns, queue))
        follows = queue[order[1:]] == queue[order[:-1]]
        after, before = order[1:][follows], order[:-1][follows]
        later = communication.end_ns[before] > ended_ns[after]
        after, before = after[later], before[later]
        ended_ns[after], launched_ns[after] = communication.end_ns[before], communication.launch_ns[before]
    return ended_ns, launched_ns


def _launched_alone(lanes: Lanes) -> Bool:
    """Return a mask [n] of the communication events whose launch was recorded and launched nothing else.

    What one launch of a graph runs has an order of its own, which is not recorded.
    """
    device = lanes.device_events
    launch_row = device.launch_row[lanes.communicates]
    launches = np.bincount(device.launch_row[device.linked], minlength=1)
    return np.asarray((launch_row != ABSENT) & (launches[np.maximum(launch_row, 0)] == 1))


def _work_of_streams(events: EventTable, lanes: Lanes) -> dict[int, _Launches]:
    """Return what the host launched on each stream that is no communication."""
    device = lanes.device_events
    works = ~lanes.communicates
    stream, ends_ns = events.track[device.row], events.end_ns[device.row]
    result = {}
    for number in np.flatnonzero(np.bincount(stream[works])).tolist():
        rows = works & (stream == number)
        result[number] = _Launches.of(device.launch_ns[rows], ends_ns[rows])
    return result


def _computing_streams(events: EventTable, lanes: Lanes) -> Int64:
    """Return the streams that have a good part of the rank's compute. Others may have a copy or a cast now and then."""
    rows = lanes.compute_rows
    took_ns = np.bincount(events.track[rows], weights=events.duration_ns[rows])
    return np.flatnonzero(took_ns > _COMPUTES * took_ns.sum())


def _awaited(events: EventTable, launched: Sequence[_Launches], since_ns: Int64, until_ns: Int64) -> Bool:
    """Return a mask [q] of the operations that depend on the one before them.

    They were launched at `until_ns` and the ones before them at `since_ns`, int64 [q] each. Nothing else was launched
    between the two, but the stream that is current was told to wait: one call belongs to the launch itself.
    """
    calls = events.in_category(*RUNTIME_CATEGORIES) & events.named(lambda name: "StreamWaitEvent" in name)
    calls_ns = np.sort(events.start_ns[calls])
    between = np.zeros(len(since_ns), dtype=np.int64)
    for launches_ns in (each.launch_ns for each in launched):
        between += np.searchsorted(launches_ns, until_ns, side="left")
        between -= np.searchsorted(launches_ns, since_ns, side="right")
    waits = np.searchsorted(calls_ns, until_ns, side="left") - np.searchsorted(calls_ns, since_ns, side="right")
    return (between <= 0) & (waits > 1)


def _dependencies(
    lanes: Lanes,
    stream: Int64,
    communicator: Int64,
    queued: Bool,
    work: Mapping[int, _Launches],
    transfers: Mapping[int, _Launches],
) -> Int64:
    """Return when what the q events depend on that queued had ended, int64 [q]; far in the past without a dependency.

    stream, communicator: int64 [n]. queued: bool [n]. work: by stream. transfers: by communicator.
    """
    launch_ns, start_ns = lanes.communication_events.launch_ns, lanes.communication_events.start_ns
    known = launch_ns != BEFORE_RECORDING
    # They may depend on nothing that is recorded, on the work of a stream, or on the communication of another group.
    depends_ns = np.full((1 + len(work) + len(transfers), len(start_ns)), _NEVER)
    last_launch_ns, last = np.full(len(start_ns), _NEVER), np.zeros(len(start_ns), dtype=np.int64)
    for index, launches in enumerate(work.values(), start=1):
        launched_ns, depends_ns[index] = launches.last_before(launch_ns)
        last = np.where(launched_ns > last_launch_ns, index, last)
        last_launch_ns = np.maximum(last_launch_ns, launched_ns)
    for index, (number, launches) in enumerate(transfers.items(), start=1 + len(work)):
        others = np.flatnonzero(communicator != number)
        depends_ns[index, others] = launches.last_before(launch_ns[others])[1]
    keys = np.stack((stream, communicator, lanes.communication_events.kind.astype(np.int64)))
    classes, of_class = np.unique(keys, axis=1, return_inverse=True)
    size = [0, *(len(launches.launch_ns) for launches in work.values()), *[0] * len(transfers)]
    refuted = known & (depends_ns > start_ns + ROUNDED_NS)
    best = _best_first(
        missed_ns=start_ns - np.maximum(launch_ns, depends_ns),
        refuted=refuted,
        free=known & ~queued,
        last=last,
        size=np.array(size),
        of_class=of_class.reshape(-1),
        count=classes.shape[1],
    )
    # What the class depends on, or the next best if this very event contradicts that.
    order = best[:, of_class.reshape(-1)[queued]]
    allowed = np.take_along_axis(~refuted[:, queued], order, axis=0)
    chosen = np.take_along_axis(order, np.argmax(allowed, axis=0)[None], axis=0)
    return np.asarray(np.take_along_axis(depends_ns[:, queued], chosen, axis=0)[0])


def _best_first(
    *, missed_ns: Int64, refuted: Bool, free: Bool, last: Int64, size: Int64, of_class: Int64, count: int
) -> Int64:
    """Return the possible dependencies of each class of events, the best first: int64 [d, count].

    The first of the d dependencies, to depend on nothing, is always possible. The impossible ones are replaced by it.

    missed_ns: from the end of each dependency to the event's start, int64 [d, n]. refuted: the event started before,
    bool [d, n]. free: whether the event did not queue, bool [n]. last: the dependency launched last before each event,
    int64 [n]. size: how many kernels each consists of, int64 [d]. of_class: int64 [n].
    """

    def per_class(values: Int64 | Bool) -> np.ndarray:
        return np.stack([np.bincount(of_class, weights=row, minlength=count) for row in values])

    possible = per_class(refuted) <= _MISTAKEN * np.bincount(of_class, minlength=count)
    missed_ns = np.where(free, np.where(refuted, _MISSED_NS, np.minimum(missed_ns, _MISSED_NS)), 0)
    mean_missed_ns = per_class(missed_ns) / np.maximum(np.bincount(of_class, weights=free, minlength=count), 1)
    least_ns = np.where(possible, mean_missed_ns, np.inf).min(axis=0)
    mean_missed_ns[mean_missed_ns <= least_ns + _ALIKE_NS] = 0
    # Of those that explain the starts equally well, the host launched the right one just before.
    launched_last = per_class((np.arange(len(missed_ns))[:, None] == last) & (last > 0))
    sizes = np.broadcast_to(-size[:, None], possible.shape)
    order = np.lexsort((sizes, -launched_last, mean_missed_ns, ~possible), axis=0)
    return np.where(np.take_along_axis(possible, order, axis=0), order, 0)


def rank_waits(trace: DecodedTrace, lanes: Lanes) -> Waits:
    """Return the waits of one recording."""
    communication, compute = lanes.communication_events, lanes.compute
    awaited = ~np.isin(communication.kind, _NEVER_AWAITED)
    freed_ns = released_ns(lanes)
    awaited &= ~compute.covers(freed_ns - 1)
    if not awaited.any():
        return Waits.empty()
    launch_ns, until_ns = communication.launch_ns[awaited], communication.end_ns[awaited]
    since_ns = np.maximum(launch_ns, int(lanes.windows.start_ns.min(initial=np.iinfo(np.int64).max)))
    if len(compute):
        last = np.searchsorted(compute.start_ns, freed_ns[awaited], side="left") - 1
        since_ns = np.where(last >= 0, np.maximum(since_ns, compute.end_ns[np.maximum(last, 0)]), since_ns)
    events = trace.events
    if (blocking := blocking_times(events, lanes)) is not None:
        return Waits(since_ns=blocking.start_ns, until_ns=blocking.end_ns)
    spans = Intervals.of_events(events, events.named(WAIT_SPAN.__eq__))
    if lanes.device == "cpu" and len(spans):
        last = np.searchsorted(spans.start_ns, until_ns, side="left") - 1
        covered = (last >= 0) & (spans.end_ns[np.maximum(last, 0)] >= until_ns)
        since_ns = np.where(covered, np.maximum(since_ns, spans.start_ns[np.maximum(last, 0)]), since_ns)
    waits = Intervals.union_of(np.minimum(since_ns, until_ns), until_ns)
    return Waits(since_ns=waits.start_ns, until_ns=waits.end_ns)


def released_ns(lanes: Lanes) -> Int64:
    """Return from when on each communication event may have released the rank, int64 [n]."""
    communication = lanes.communication_events
    start_ns, end_ns = communication.start_ns, communication.end_ns
    if lanes.device == "gpu":
        return end_ns
    part_ns = (end_ns - start_ns) // _RECORDED_LATE_PART
    late_ns, locked_ns = (np.minimum(longest_ns, part_ns) for longest_ns in (_RECORDED_LATE_NS, _LOCKED_NS))
    idle_since_ns, idle_until_ns = _idle_around(lanes.compute, end_ns - locked_ns)
    result: Int64 = end_ns - np.where(idle_until_ns - idle_since_ns >= locked_ns, locked_ns, late_ns)
    # An idle time that is so many times as long as the rest of the span covers this moment.
    idle_since_ns, idle_until_ns = _idle_around(lanes.compute, end_ns - (end_ns - start_ns) // (_IDLED_TIMES + 1))
    idled_ns = idle_until_ns - np.maximum(idle_since_ns, start_ns)
    return np.where(idled_ns >= _IDLED_TIMES * (end_ns - idle_until_ns), np.minimum(result, idle_until_ns), result)


def _idle_around(compute: Intervals, time_ns: Int64) -> tuple[Int64, Int64]:
    """Return since when and until when nothing computes around each time, from compute to compute; without that twice
    the time.
    """
    if not len(compute):
        return time_ns, time_ns
    last = np.searchsorted(compute.start_ns, time_ns, side="left") - 1
    following = np.minimum(last + 1, len(compute) - 1)
    known = (last >= 0) & (last + 1 < len(compute)) & (compute.end_ns[np.maximum(last, 0)] < time_ns)
    since_ns, until_ns = compute.end_ns[np.maximum(last, 0)], compute.start_ns[following]
    return np.where(known, since_ns, time_ns), np.where(known, until_ns, time_ns)
