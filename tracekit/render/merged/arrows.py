"""Ids of arrows, unique in the trace, and the arrows between slices of one recording.

Those lead from a launch to the device events that it launched, and from a forward operator to its backward operator. An
arrow always leads forward in time. So there is none where the clocks of host and device contradict each other.
"""

from __future__ import annotations

import numpy as np

from tracekit.model.events import ABSENT, Bool, EventTable, Int64
from tracekit.rank.kernel_launches import DeviceEvents
from tracekit.render.slices import ROLES, Flows, Unsigned

# Ids have 64 bits. Arrows that are numbered over the run have their kind in the upper four bits. Ids below 2^60 belong
# to arrows between events of one rank: 2^40 ids for each kind and rank.
COLLECTIVE_ARROWS, MESSAGE_ARROWS, LATE_ARROWS, CHAIN_ARROWS = (kind << 60 for kind in (1, 2, 3, 4))
_LAUNCH, _AUTOGRAD = range(2)
_RANK_BITS = 40


def ids_of(kind: int, number: Int64) -> Unsigned:
    """Return ids of arrows from their numbers in the run, int64 [n]: uint64 [n], 0 for -1.

    kind: one of the constants above, such as `COLLECTIVE_ARROWS`.
    """
    return np.where(number == ABSENT, 0, number + (kind + 1)).astype(np.uint64)


def _first_id(rank_index: int, kind: int, first_row: int) -> int:
    return ((2 * rank_index + kind + 1) << _RANK_BITS) + first_row


def launch_arrows(events: EventTable, device: DeviceEvents, kept: Bool, *, rank_index: int, first_row: int) -> Flows:
    """Return arrows from each launch to all device events that it launched, in order of time.

    kept: mask [n] of the events that are shown. rank_index: in the ranks of the run. first_row: number of events in the
    rank's earlier recordings.
    """
    linked, ids_from = device.linked, _first_id(rank_index, _LAUNCH, first_row)
    return _arrows(events, device.launch_row[linked], device.row[linked], kept, ids_from=ids_from)


def autograd_arrows(events: EventTable, kept: Bool, *, rank_index: int, first_row: int) -> Flows:
    """Return arrows from each forward operator to its backward operator. Parameters are those of `launch_arrows`.

    The two operators share a sequence number, which counts the operators of a forward thread. Of several operators with
    the number in the backward thread the outermost is taken; of those in the forward thread the last that began before
    it. If several threads ran forward passes, the thread that has most of the backward thread's numbers is taken, and
    none if two threads have equally many.
    Source: `generateForwardBackwardLinks`, torch/csrc/autograd/profiler_kineto.cpp.
    """
    numbered = (events.sequence_number != ABSENT) & kept
    is_backward = numbered & (events.forward_thread > 0)
    forward_rows, backward_rows = np.flatnonzero(numbered & ~is_backward), np.flatnonzero(is_backward)
    head, member = [_NO_ROWS], [_NO_ROWS]
    for thread in np.unique(events.forward_thread[backward_rows]).tolist():
        backward = backward_rows[events.forward_thread[backward_rows] == thread]
        forward = _forward_of_thread(events, forward_rows, events.sequence_number[backward])
        source = _last_forward(events, forward, backward)
        head.append(source[source != ABSENT])
        member.append(backward[source != ABSENT])
    ids_from = _first_id(rank_index, _AUTOGRAD, first_row)
    return _arrows(events, np.concatenate(head), np.concatenate(member), kept, ids_from=ids_from)


_NO_ROWS = np.empty(0, dtype=np.int64)


def _forward_of_thread(events: EventTable, forward: Int64, numbers: Int64) -> Int64:
    """Return the forward operators of the track that has most of the numbers; none if two tracks have equally many."""
    tracks = events.tracks_of(forward)
    if len(tracks) <= 1:
        return forward
    matching = forward[np.isin(events.sequence_number[forward], numbers)]
    count = np.bincount(events.track[matching], minlength=len(events.tracks))
    best = np.flatnonzero(count == count.max())
    return forward[events.track[forward] == best[0]] if len(best) == 1 else _NO_ROWS


def _last_forward(events: EventTable, forward: Int64, backward: Int64) -> Int64:
    """Return the forward operator of each backward operator, or -1, int64 [k].

    A backward operator inside another one of its number is a part of that one, and has -1.
    """
    rows = np.concatenate((forward, backward))
    rows = rows[np.lexsort((-events.duration_ns[rows], events.start_ns[rows], events.sequence_number[rows]))]
    number, is_backward = events.sequence_number[rows], events.forward_thread[rows] > 0
    last = np.maximum.accumulate(np.where(is_backward, ABSENT, np.arange(len(rows))))
    source = np.where((last != ABSENT) & (number[last] == number), rows[last], ABSENT)
    inside = np.zeros(len(rows), dtype=np.bool_)
    inside[1:] = is_backward[:-1] & (number[1:] == number[:-1]) & (events.start_ns[rows[1:]] < events.end_ns[rows[:-1]])
    source[inside] = ABSENT
    source_of_row = np.full(len(events), ABSENT, dtype=np.int64)
    source_of_row[rows] = source
    return np.asarray(source_of_row[backward])


def _arrows(events: EventTable, head: Int64, member: Int64, kept: Bool, *, ids_from: int) -> Flows:
    """Return arrows from each row in `head`, int64 [k], to the row in `member`, int64 [k].

    If a head has several members, its arrow passes through them in order of time.
    """
    ids = np.zeros(len(events), dtype=np.uint64)
    role = np.zeros(len(events), dtype=np.uint8)
    drawn = kept[head] & kept[member] & (events.start_ns[head] <= events.start_ns[member])
    head, member = head[drawn], member[drawn]
    order = np.lexsort((events.start_ns[member], head)) if len(head) else np.empty(0, dtype=np.int64)
    head, member = head[order], member[order]
    ids[head] = (head + (ids_from + 1)).astype(np.uint64)
    ids[member] = ids[head]
    goes_on = np.append(head[1:] == head[:-1], False)[: len(head)]
    role[member] = np.where(goes_on, ROLES.index("passes"), ROLES.index("ends"))
    return Flows(ids=ids, role=role)
