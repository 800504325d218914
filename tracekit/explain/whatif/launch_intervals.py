"""What the host of a GPU rank launched between the points at which it, or its device, depends on anything else.

The host's time is cut where it launched communication, and where it waited for its device. Each cut has what had to be
waited for. The cuts are made before it is known what was launched between them.

Why a kernel started when it did decides what it depends on. A kernel starts when the last of three has happened: the
kernel before it has ended, its launch has come through, and the communication that its stream waits for has ended. A
trace shows the times, not the reason. The reason is taken to be the last one that happened.

How much the rank gives and gets in each all-to-all of tokens for experts is kept for replays, too (`exchanges`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np

from tracekit.explain.model_parallel.expert_exchanges import expert_all_to_alls
from tracekit.explain.pipeline.tables import Actions
from tracekit.explain.whatif.tables import CUTS, Exchanges, Interruptions, LaunchIntervals
from tracekit.model.columnar import Columnar
from tracekit.model.communication import DTYPES, KINDS
from tracekit.model.events import ABSENT, ROUNDED_NS, Bool, DecodedTrace, EventTable, Int64
from tracekit.model.intervals import Intervals
from tracekit.rank.communication_rules import bytes_per_element
from tracekit.rank.idle_causes import allocations, garbage_collections, host_threads
from tracekit.rank.kernel_launches import BEFORE_RECORDING, RUNTIME_CATEGORIES, DeviceEvents
from tracekit.rank.lanes import Lanes
from tracekit.rank.recorded_steps import RecordedSteps
from tracekit.rank.segments import loading_times
from tracekit.replay.operation_graph import NO_TRAINING

_EDGES = ("start_ns", "end_ns")
_SHORTEST_NS = 50_000  # of logging, allocating or collecting that the host's time is cut at
_LINKED_SHARE = 0.9  # of the kernels: with fewer launches the host's time is not known
_BEGIN, _WAIT, _RESUME, _STEP, _END, _MARK = (
    CUTS.index(what) for what in ("begin", "wait", "resume", "step", "end", "mark")
)

_LAUNCH = CUTS.index("launch")
_EARLIER_ENDS = 4  # so many ends before its start are looked at for what communication waited for
_INDEPENDENT_SHARE = 0.2  # of the collectives of a group and kind that could: so many ran before earlier kernels ended

_SYNCHRONISES = re.compile(r"\w*Synchronize|(?:cuda|hip)(?:Memcpy|MemcpyWithStream|Free)")
_SYNCHRONISE = CUTS.index("synchronise")
_WOKEN_NS = 50_000  # from the end of what a host waits for to the end of its call
_LONG_NS = 200_000  # a host that is not heard of for so long may be waiting

_BYTES = np.array([bytes_per_element(name) or 0 for name in DTYPES], dtype=np.int64)

RELEASED_NS = 50_000
"""From the end of communication to the start of a kernel that waits for it, at most."""

_LATENCY_NS = 5_000  # from a launch to the start on an idle device, if the trace does not show it
_LARGEST_LATENCY_NS = 20_000
_GAP_NS = 1_000  # between two kernels that were launched in time, likewise
_LARGEST_GAP_NS = 5_000
_MAIN_SHARE = 0.1  # of the time of all kernels: a stream with less is a side stream
_SEND = KINDS.index("send")
_RELEASES_NOBODY = tuple(KINDS.index(kind) for kind in ("peer_copy", "unclassified"))


def interruptions(recorded: RecordedSteps) -> Interruptions:
    """Return when a CPU rank does not train; a GPU rank's intervals tell it."""
    return Interruptions.empty() if recorded.lanes.device == "gpu" else recorded.once(_interruptions)


def _interruptions(recorded: RecordedSteps) -> Interruptions:
    pauses = recorded.phases.pauses
    times = {
        "data": recorded.once(loading_times) - pauses.checkpoint - pauses.evaluation,
        "checkpoint": pauses.checkpoint,
        "evaluation": pauses.evaluation,
        "logging": _long(pauses.logging),
    }
    events, before = recorded.trace.events, times["data"] | pauses.checkpoint | pauses.evaluation | times["logging"]
    times["garbage_collection"] = _long(garbage_collections(events) - before)
    allocator = allocations(events, recorded.once(host_threads))
    times["allocator"] = _long(allocator - before - times["garbage_collection"])
    begin_ns, end_ns = (np.concatenate([getattr(times[what], edge) for what in NO_TRAINING]) for edge in _EDGES)
    what = np.repeat(np.arange(len(NO_TRAINING), dtype=np.int32), [len(times[what]) for what in NO_TRAINING])
    order = np.argsort(begin_ns, kind="stable")
    return Interruptions(what=what[order], begin_ns=begin_ns[order], end_ns=end_ns[order])


def _long(time: Intervals) -> Intervals:
    """Return the parts of some time that are worth a cut."""
    is_long = time.duration_ns >= _SHORTEST_NS
    return Intervals(time.start_ns[is_long], time.end_ns[is_long])


def launch_intervals(recorded: RecordedSteps, actions: Actions) -> LaunchIntervals:
    """Return the intervals of one recording; none for a CPU rank, or if the trace does not show the launches.

    actions: of a pipeline; intervals are cut where their kernels begin and end.
    """
    lanes = recorded.lanes
    device = lanes.device_events
    if lanes.device == "cpu":
        return LaunchIntervals.empty()
    known = device.linked | device.before_recording
    if not known.any() or known.mean() < _LINKED_SHARE:
        return LaunchIntervals.empty()
    kernels = kernel_starts(recorded.trace, lanes)
    cuts = _cuts(recorded, kernels, actions)
    return _intervals(recorded, kernels, cuts)


def _cuts(recorded: RecordedSteps, kernels: KernelStarts, actions: Actions) -> Cuts:
    """Return the cuts in order of launch."""
    windows, interrupted = recorded.lanes.windows, recorded.once(_interruptions)
    launches = communication_launches(recorded, kernels)
    synchronised = synchronisations(recorded, kernels)
    allocates = interrupted.rows(interrupted.what == NO_TRAINING.index("allocator"))
    in_allocation = Intervals(allocates.begin_ns, allocates.end_ns).covers(synchronised.begin_ns)
    synchronised = synchronised.rows(~in_allocation)  # to free memory takes its time, whatever it waits for
    unrecorded = unrecorded_synchronisations(recorded, kernels, synchronised)
    waiting = np.flatnonzero(kernels.awaited_ns != ABSENT)
    marked = np.searchsorted(kernels.reach_ns, synchronised.awaited_kernel_ns, side="right")
    marked = marked[(synchronised.awaited_kernel_ns != ABSENT) & (marked < synchronised.position)]
    borders_ns = np.concatenate((actions.start_ns, actions.end_ns))
    borders = np.searchsorted(np.maximum.accumulate(kernels.start_ns), borders_ns, side="left")
    marked = np.unique(np.concatenate((marked, borders[borders < len(kernels)])))
    first_ns = min(
        int(windows.host_start_ns[0]), int(kernels.launch_ns[0]) if len(kernels) else int(windows.start_ns[0])
    )
    parts = [
        plain_cuts(_BEGIN, np.array([first_ns]), kernels),
        launches,
        plain_cuts(_WAIT, kernels.launch_ns[waiting], kernels, waiting, kernels.awaited_ns[waiting]),
        synchronised,
        unrecorded,
        plain_cuts(_MARK, kernels.launch_ns[marked], kernels, marked),
        *(
            plain_cuts(CUTS.index(what), interrupted.begin_ns[interrupted.what == number], kernels)
            for number, what in enumerate(NO_TRAINING)
        ),
        plain_cuts(_RESUME, interrupted.end_ns, kernels),
        plain_cuts(_STEP, windows.host_start_ns, kernels),
        plain_cuts(_END, np.array([windows.host_end_ns]), kernels),
    ]
    cuts = Cuts.concatenate(parts)
    # At one time the beginning comes first, and a wait last: it is the next kernel that waits.
    last = (cuts.what == _WAIT).astype(np.int64) - (cuts.what == _BEGIN)
    return cuts.rows(np.lexsort((cuts.what, last, cuts.begin_ns, cuts.position)))


def _intervals(recorded: RecordedSteps, kernels: KernelStarts, cuts: Cuts) -> LaunchIntervals:
    count, windows = len(cuts.what), recorded.lanes.windows
    of_kernel = np.cumsum(np.bincount(cuts.position, minlength=len(kernels) + 1))[: len(kernels)] - 1
    first = int(np.searchsorted(of_kernel, 0))  # the kernels before it were launched before the first cut
    work_ns = kernels.gap_ns + kernels.busy_ns
    device_ns = np.bincount(of_kernel[first:], work_ns[first:], count).astype(np.int64)
    kernels_in = np.bincount(of_kernel[first:], minlength=count)
    launched_so_far = np.append(cuts.position[1:], len(kernels))
    device_end_ns = np.append(kernels.reach_ns, ABSENT)[launched_so_far - 1]
    limit_host_ns, limit_device_ns = _limits(kernels.rows(slice(first, None)), cuts, of_kernel[first:])
    window = windows.index_of(cuts.begin_ns)
    return LaunchIntervals(
        what=cuts.what.astype(np.int32),
        step=np.where(window >= 0, windows.step[window], ABSENT),
        begin_ns=cuts.begin_ns,
        until_ns=cuts.until_ns,
        device_ns=np.where(kernels_in > 0, device_ns, ABSENT),
        device_end_ns=device_end_ns,
        limit_host_ns=limit_host_ns,
        limit_device_ns=limit_device_ns,
        awaited_kernel_ns=cuts.awaited_kernel_ns,
        awaited_communication_ns=cuts.awaited_communication_ns,
        communication_end_ns=cuts.communication_end_ns,
        needs_kernels=cuts.needs_kernels.astype(np.int32),
    )


def _limits(kernels: KernelStarts, cuts: Cuts, of_kernel: Int64) -> tuple[Int64, Int64]:
    """Return `limit_host_ns` and `limit_device_ns` of `LaunchIntervals`.

    After each kernel's launch come its latency, its own time, and the time of the kernels behind it. The last kernel of
    a host interval ends no earlier than the latest of these.

    of_kernel: the cut before each kernel, int64 [n].
    """
    limit_host_ns, limit_device_ns = np.full((2, len(cuts)), ABSENT, dtype=np.int64)
    if not len(kernels):
        return limit_host_ns, limit_device_ns
    is_host = cuts.what != _WAIT
    cuts_host = np.flatnonzero(is_host)
    number = (np.cumsum(is_host) - 1)[of_kernel]  # of the host interval
    opening = np.diff(number, prepend=-1) != 0
    opens, index = np.flatnonzero(opening), np.cumsum(opening) - 1
    done_ns = np.cumsum(kernels.gap_ns + kernels.busy_ns)
    last_ns = done_ns[np.append(opens[1:], len(kernels)) - 1]
    tail_ns = last_ns[index] - done_ns + kernels.busy_ns
    begun_ns = kernels.launch_ns + kernels.latency_ns - cuts.until_ns[cuts_host][number]
    begun_ns = np.maximum(begun_ns, 0)
    deciding = _last_maximum(begun_ns + tail_ns, index, opens)
    last_row = np.append(cuts_host[1:], len(cuts))[number[opens]] - 1
    limit_host_ns[last_row], limit_device_ns[last_row] = begun_ns[deciding], tail_ns[deciding]
    return limit_host_ns, limit_device_ns


def _last_maximum(values: Int64, number: Int64, first: Int64) -> Int64:
    """Return where the largest value of each of c numbers is, int64 [c].

    number: of each value, int64 [n], ascending from 0. first: where the values of each number begin, int64 [c].
    """
    largest = np.flatnonzero(values == np.maximum.reduceat(values, first)[number])
    return largest[np.searchsorted(number[largest], np.arange(len(first)), side="right") - 1]


def communication_launches(recorded: RecordedSteps, kernels: KernelStarts) -> Cuts:
    """Return a cut at each launch of communication, and at each message whose launch is another call."""
    communication = recorded.lanes.communication_events
    rows = np.flatnonzero(communication.launch_ns != BEFORE_RECORDING)
    launch_ns, start_ns = communication.launch_ns[rows], communication.start_ns[rows]
    position = np.searchsorted(kernels.launch_ns, launch_ns, side="left")
    last = np.searchsorted(kernels.launch_ns, launch_ns, side="right")
    for i in np.flatnonzero(last > position).tolist():  # one launch of a graph: its kernels run in order of time
        position[i] += np.searchsorted(kernels.start_ns[position[i] : last[i]], start_ns[i], side="left")
    before_ns = np.where(position > 0, np.append(kernels.reach_ns, ABSENT)[position - 1], ABSENT)
    end_ns, stream = communication.end_ns[rows], recorded.trace.events.track[communication.row[rows]].astype(np.int64)
    ran_before = start_ns < before_ns - ROUNDED_NS
    # Nothing can be learned from one that was launched after the kernels, or queued behind other communication.
    telling = (launch_ns < before_ns) & (_ends_before(start_ns, end_ns, stream) < before_ns)
    sort = communication.group[rows].astype(np.int64) * len(KINDS) + communication.kind[rows]
    numbers, number = np.unique(sort, return_inverse=True)
    independent = np.bincount(number, ran_before, len(numbers))
    needs = ~ran_before & (independent <= _INDEPENDENT_SHARE * np.bincount(number, telling, len(numbers)))[number]
    since_ns = np.maximum(np.where(needs, before_ns, ABSENT), launch_ns)
    at_launch = replace(
        plain_cuts(_LAUNCH, launch_ns, kernels, position),
        awaited_communication_ns=_awaited_communication(start_ns, end_ns, stream, since_ns),
        communication_end_ns=end_ns,
        needs_kernels=needs.astype(np.int64),
    )
    messages = recorded.messages
    others_ns = messages.issue_ns[(messages.end_ns != ABSENT) & ~np.isin(messages.end_ns, end_ns)]
    elsewhere = plain_cuts(_LAUNCH, np.setdiff1d(others_ns, launch_ns), kernels)
    elsewhere = replace(elsewhere, needs_kernels=np.ones(len(elsewhere.what), dtype=np.int64))
    return Cuts.concatenate([at_launch, elsewhere])


def _awaited_communication(start_ns: Int64, end_ns: Int64, stream: Int64, since_ns: Int64) -> Int64:
    """Return the end of the communication that each of n events waited for, or -1: int64 [n].

    Communication waits for what is before it on its stream, and for what its rank's compute stream waits for. Then it
    begins as soon as that has ended.

    stream: of each event, int64 [n]. since_ns: when each could have begun but for other communication, int64 [n].
    """
    by_end = np.argsort(end_ns, kind="stable")
    index = np.searchsorted(end_ns[by_end], start_ns + ROUNDED_NS, side="right") - 1
    result = np.full(len(start_ns), ABSENT, dtype=np.int64)
    ended_ns = _ends_before(start_ns, end_ns, stream)
    since_ns = np.maximum(since_ns, ended_ns)
    for _ in range(_EARLIER_ENDS):
        at = by_end[np.maximum(index, 0)]
        found = (index >= 0) & (stream[at] != stream) & (result == ABSENT)
        found &= (start_ns - end_ns[at] <= RELEASED_NS) & (end_ns[at] > since_ns + ROUNDED_NS)
        result[found] = end_ns[at[found]]
        index = index - 1
    return np.where(result == ABSENT, ended_ns, result)


def _ends_before(start_ns: Int64, end_ns: Int64, stream: Int64) -> Int64:
    """Return when the events before each one on its stream had ended, or -1: int64 [n]."""
    result = np.full(len(start_ns), ABSENT, dtype=np.int64)
    for number in np.unique(stream).tolist():
        here = np.flatnonzero(stream == number)
        here = here[np.argsort(start_ns[here], kind="stable")]
        result[here[1:]] = np.maximum.accumulate(end_ns[here])[:-1]
    return result


def synchronisations(recorded: RecordedSteps, kernels: KernelStarts) -> Cuts:
    """Return a cut at each call that waits for the device, on threads that launch kernels, with what it waited for.

    That is the kernel that was launched last before the call, if it has ended by the end of the call. Otherwise it is
    the kernel or communication that ended right before the end of the call.
    """
    trace, lanes = recorded.trace, recorded.lanes
    launch_rows = lanes.device_events.launch_row[lanes.device_events.linked]
    events = trace.events
    synchronises = events.named(lambda name: _SYNCHRONISES.fullmatch(name) is not None)
    synchronises[_blocking_copies(events, lanes.device_events)] = True
    rows = np.flatnonzero(synchronises & events.in_category(*RUNTIME_CATEGORIES))
    launching = np.bincount(events.track[launch_rows], minlength=len(events.tracks)) > 0
    rows = rows[launching[events.track[rows]]]
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    begin_ns, until_ns = events.start_ns[rows], events.end_ns[rows]
    by_ns = until_ns + ROUNDED_NS
    position = np.searchsorted(kernels.launch_ns, begin_ns, side="right")  # a copy waits for itself
    last = np.minimum(np.searchsorted(kernels.reach_ns, by_ns, side="right"), position) - 1
    kernel_ns = np.append(kernels.reach_ns, ABSENT)[last]
    ends_ns = np.sort(lanes.communication_events.end_ns)
    over_ns = np.append(ends_ns, ABSENT)[np.searchsorted(ends_ns, by_ns, side="right") - 1]
    for_all = last == position - 1
    woken_by_kernel, woken_by_communication = (
        (time_ns > begin_ns) & (until_ns - time_ns <= _WOKEN_NS) for time_ns in (kernel_ns, over_ns)
    )
    for_communication = woken_by_communication & (over_ns > kernel_ns + ROUNDED_NS)
    none = np.full(len(rows), ABSENT, dtype=np.int64)
    for_kernel = (kernel_ns != ABSENT) & (for_all | (woken_by_kernel & ~for_communication))
    return Cuts(
        what=np.full(len(rows), _SYNCHRONISE, dtype=np.int64),
        position=position,
        begin_ns=begin_ns,
        until_ns=until_ns,
        awaited_kernel_ns=np.where(for_kernel, kernel_ns, ABSENT),
        awaited_communication_ns=np.where(for_communication, over_ns, ABSENT),
        communication_end_ns=none,
        needs_kernels=none,
    )


def _blocking_copies(events: EventTable, device: DeviceEvents) -> Int64:
    """Return the rows of calls that copy, int64 [k], and last until their copy is over: from memory that is not pinned,
    cudaMemcpyAsync does.
    """
    copies = device.linked & ~device.is_kernel
    call = device.launch_row[copies]
    return call[events.end_ns[call] >= events.end_ns[device.row[copies]]]


def unrecorded_synchronisations(recorded: RecordedSteps, kernels: KernelStarts, synchronised: Cuts) -> Cuts:
    """Return a cut where the host waited for its device although no call shows it.

    The host launched nothing and ran no operator for a long time, and went on right when all that it had launched was
    over.
    """
    trace, lanes = recorded.trace, recorded.lanes
    events, device = trace.events, lanes.device_events
    linked = np.flatnonzero(device.linked)
    linked = linked[np.argsort(device.launch_ns[linked], kind="stable")]
    launch_ns = device.launch_ns[linked]
    steps_ns = np.append(lanes.windows.host_start_ns, lanes.windows.host_end_ns)
    points_ns = np.sort(np.concatenate((launch_ns[1:][np.diff(launch_ns) >= _LONG_NS], steps_ns)))
    index = np.searchsorted(launch_ns, points_ns, side="left") - 1
    points_ns, index = points_ns[index >= 0], index[index >= 0]
    last_ns = launch_ns[index]
    done_ns = np.maximum.accumulate(events.end_ns[device.row[linked]])[index]
    woken_ns = points_ns - done_ns
    found = (points_ns - last_ns >= _LONG_NS) & (done_ns - last_ns >= _LONG_NS // 2)
    found &= (woken_ns >= -ROUNDED_NS) & (woken_ns <= _WOKEN_NS)
    found &= np.searchsorted(synchronised.until_ns, points_ns) <= np.searchsorted(synchronised.until_ns, last_ns)
    points_ns, last_ns, done_ns = points_ns[found], last_ns[found], done_ns[found]
    if not len(points_ns):
        return Cuts.empty()
    # Rows are nearly in order of time, which a stable sort makes use of.
    begins_ns = np.sort(events.start_ns[events.in_category("cpu_op")], kind="stable")
    first, stop = (np.searchsorted(begins_ns, t) for t in (last_ns + _LONG_NS // 4, done_ns - ROUNDED_NS))
    quiet = first >= stop
    points_ns, last_ns, done_ns = points_ns[quiet], last_ns[quiet], done_ns[quiet]
    kernel_ns = np.append(kernels.reach_ns, ABSENT)[np.searchsorted(kernels.launch_ns, last_ns, side="right") - 1]
    return Cuts.of_rows(
        len(points_ns),
        what=_SYNCHRONISE,
        position=np.searchsorted(kernels.launch_ns, points_ns, side="left"),
        begin_ns=np.minimum(last_ns + _LONG_NS // 4, points_ns),
        until_ns=np.minimum(done_ns, points_ns),
        awaited_kernel_ns=np.where(kernel_ns == done_ns, done_ns, ABSENT),
        awaited_communication_ns=np.where(kernel_ns == done_ns, ABSENT, done_ns),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Cuts(Columnar):
    """k cuts; the columns are those of `LaunchIntervals`. position: number of kernels launched before, int64 [k]."""

    what: Int64
    position: Int64
    begin_ns: Int64
    until_ns: Int64
    awaited_kernel_ns: Int64
    awaited_communication_ns: Int64
    communication_end_ns: Int64
    needs_kernels: Int64


def plain_cuts(
    what: int, begin_ns: Int64, kernels: KernelStarts, position: Int64 | None = None, awaited_ns: Int64 | None = None
) -> Cuts:
    """Return cuts that take no time, int64 [k] each.

    what: index into `CUTS`. begin_ns: on the rank's wall clock. position: how many kernels were launched before each;
    None: by time. awaited_ns: the end of the communication that has to be over; None: of none.
    """
    return Cuts.of_rows(
        len(begin_ns),
        what=what,
        position=np.searchsorted(kernels.launch_ns, begin_ns, side="left") if position is None else position,
        begin_ns=begin_ns,
        until_ns=begin_ns,
        awaited_communication_ns=ABSENT if awaited_ns is None else awaited_ns,
    )


def exchanges(recorded: RecordedSteps) -> Exchanges:
    """Return the all-to-alls of one recording that bring tokens to experts or take them back, if their sizes are known.

    Other all-to-alls, as of embedding tables, may be uneven as well. No router decides how much they bring.
    """
    found = recorded.once(expert_all_to_alls)
    communication = recorded.lanes.communication_events
    width = _BYTES[communication.dtype[found.which]]
    known = (found.sent != ABSENT) & (width > 0)
    return Exchanges(
        launch_ns=communication.launch_ns[found.which][known],
        sent_bytes=(found.sent * width)[known],
        received_bytes=(found.received * width)[known],
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class KernelStarts(Columnar):
    """The n kernels and copies on the main streams of a rank, in order of launch.

    Streams with little work are left out: what they copy in and out for communication is part of the transfer.

    Attributes:
        launch_ns: int64 [n].
        latency_ns: from the launch to the start on an idle device, int64 [n].
        gap_ns: from the end of the kernel before, or of the communication that it waited for, to its start, if it is
            launched in time, int64 [n].
        busy_ns: how long it adds to the time in which kernels run, int64 [n].
        reach_ns: when this and all kernels before it have ended, int64 [n].
        awaited_ns: the end of the communication that it waited for, or -1, int64 [n].
        start_ns: int64 [n].
    """

    launch_ns: Int64
    latency_ns: Int64
    gap_ns: Int64
    busy_ns: Int64
    reach_ns: Int64
    awaited_ns: Int64
    start_ns: Int64


def kernel_starts(trace: DecodedTrace, lanes: Lanes) -> KernelStarts:
    """Return the kernels and copies of a GPU rank's main streams, whose launches are known."""
    events, device = trace.events, lanes.device_events
    works = ~lanes.communicates & device.linked
    row, launch_ns = device.row[works], device.launch_ns[works]
    start_ns, end_ns, stream = events.start_ns[row], events.end_ns[row], events.track[row]
    by_stream_ns = np.bincount(stream, end_ns - start_ns, minlength=len(events.tracks))
    is_main = (by_stream_ns >= _MAIN_SHARE * by_stream_ns.sum())[stream]
    releases = _releases(lanes, start_ns[~is_main], end_ns[~is_main])
    launch_ns, start_ns, end_ns = launch_ns[is_main], start_ns[is_main], end_ns[is_main]
    order = np.argsort(launch_ns, kind="stable")  # they are in order of start
    launch_ns, start_ns, end_ns = launch_ns[order], start_ns[order], end_ns[order]
    reach_ns = np.maximum.accumulate(end_ns)
    before_ns = np.concatenate((launch_ns[:1], reach_ns[:-1]))
    gap_ns = np.maximum(start_ns - before_ns, 0)
    late = launch_ns >= before_ns
    released_by_ns, released_ns = _last_release(releases, np.maximum(before_ns, launch_ns), start_ns)
    released = released_ns != ABSENT
    after_launch_ns = np.maximum(start_ns - launch_ns, 0)
    usual_latency_ns = min(_median(after_launch_ns[late & ~released], _LATENCY_NS), _LARGEST_LATENCY_NS)
    queued = (launch_ns + 4 * usual_latency_ns < before_ns) & (start_ns >= before_ns)
    usual_gap_ns = min(_median(gap_ns[queued & ~released], _GAP_NS), _LARGEST_GAP_NS)
    waited = released & (gap_ns > 2 * usual_gap_ns + ROUNDED_NS)
    free_ns = np.where(waited, released_ns, before_ns)
    gap_ns = np.maximum(start_ns - free_ns, 0)
    by_launch = ~waited & (launch_ns + usual_latency_ns >= before_ns) & (start_ns >= before_ns)
    return KernelStarts(
        launch_ns=launch_ns,
        latency_ns=np.where(by_launch, after_launch_ns, np.minimum(after_launch_ns, usual_latency_ns)),
        gap_ns=np.where(by_launch, np.minimum(gap_ns, usual_gap_ns), gap_ns),
        busy_ns=np.maximum(end_ns - np.maximum(start_ns, before_ns), 0),
        reach_ns=reach_ns,
        awaited_ns=np.where(waited, released_by_ns, ABSENT),
        start_ns=start_ns,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Releases(Columnar):
    """e ends of communication that kernels may have waited for, in order of `released_ns`.

    Attributes:
        end_ns: of the communication, int64 [e].
        released_ns: when a kernel could start, int64 [e].
        sends: whether it only sends, bool [e].
    """

    end_ns: Int64
    released_ns: Int64
    sends: Bool


def _releases(lanes: Lanes, start_ns: Int64, end_ns: Int64) -> _Releases:
    """Return the ends of communication.

    A kernel of a side stream that starts when communication ends, such as a copy out of its buffer, is part of it:
    the communication lets others start at that kernel's end.

    start_ns, end_ns: of the kernels on side streams, int64 [k].
    """
    communication = lanes.communication_events
    rows = np.flatnonzero(~np.isin(communication.kind, _RELEASES_NOBODY))
    rows = rows[np.argsort(communication.end_ns[rows], kind="stable")]
    ends_ns, sends = communication.end_ns[rows], communication.kind[rows] == _SEND
    index = np.searchsorted(ends_ns, start_ns + ROUNDED_NS, side="right") - 1
    latest_ns = np.append(ends_ns, ABSENT)[index]
    follows = (index >= 0) & (start_ns - latest_ns <= RELEASED_NS)
    releases = _Releases(
        end_ns=np.concatenate((ends_ns, latest_ns[follows])),
        released_ns=np.concatenate((ends_ns, end_ns[follows])),
        sends=np.concatenate((sends, np.append(sends, False)[index[follows]])),
    )
    return releases.rows(np.argsort(releases.released_ns, kind="stable"))


def _last_release(releases: _Releases, since_ns: Int64, start_ns: Int64) -> tuple[Int64, Int64]:
    """Return the end of the communication that lets each of n kernels start, and when it did, int64 [n]; -1 if none.

    It is the last to end after `since_ns` and shortly before the start. A send counts if nothing else does: a kernel
    seldom waits for what it gave away, and often a receive ends at the same time.
    """
    result = np.full((2, len(start_ns)), ABSENT, dtype=np.int64)
    for possible in (releases.rows(~releases.sends), releases) if releases.sends.any() else (releases,):
        index = np.searchsorted(possible.released_ns, start_ns + ROUNDED_NS, side="right") - 1
        end_ns, latest_ns = (np.append(column, ABSENT)[index] for column in (possible.end_ns, possible.released_ns))
        found = (index >= 0) & (latest_ns > since_ns + ROUNDED_NS) & (start_ns - latest_ns <= RELEASED_NS)
        rows = np.flatnonzero(found & (result[0] == ABSENT))
        result[0, rows], result[1, rows] = end_ns[rows], latest_ns[rows]
    return result[0], result[1]


def _median(values: Int64, otherwise: int) -> int:
    middle = len(values) // 2
    return int(np.partition(values, middle)[middle]) if len(values) else otherwise
