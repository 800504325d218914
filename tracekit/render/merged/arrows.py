"""Arrows: their ids, unique in the trace, and those between the slices of one rank's recording.

Comes in: the rank's events and lanes. Goes out: `Flows` of all events, from a launch to what it launched and from a
forward operator to its backward. An arrow always leads forward in time: where clocks of host and device disagree there
is none.
"""

from __future__ import annotations

import numpy as np

from tracekit.analysis.events.kernel_launches import DeviceEvents
from tracekit.model.events import ABSENT, Bool, EventTable, Int64
from tracekit.render.trace.slices import ROLES, Flows, Unsigned

__all__ = ["CHAIN_ARROWS", "COLLECTIVE_ARROWS", "LATE_ARROWS", "MESSAGE_ARROWS"]
__all__ += ["autograd_arrows", "ids_of", "launch_arrows"]

# Ids are 64 bits: arrows that are numbered over the run have their kind in the upper four; below 2^60 those of a rank's
# events, 2^40 for each kind and rank.
COLLECTIVE_ARROWS, MESSAGE_ARROWS, LATE_ARROWS, CHAIN_ARROWS = (kind << 60 for kind in (1, 2, 3, 4))
_LAUNCH, _AUTOGRAD = range(2)
_OWN_BITS = 40


def ids_of(kind: int, number: Int64) -> Unsigned:
    """uint64 [n]: of arrows numbered over the run, int64 [n], 0 for -1; `kind`: such as `COLLECTIVE_ARROWS`."""
    return np.where(number == ABSENT, 0, number + (kind + 1)).astype(np.uint64)


def _first_id(place: int, kind: int, first_row: int) -> int:
    return ((2 * place + kind + 1) << _OWN_BITS) + first_row


def launch_arrows(events: EventTable, device: DeviceEvents, kept: Bool, *, place: int, first_row: int) -> Flows:
    """From each launch to all that it launched, in order of time, of the events in the mask `kept` [n]; `place`: of the
    rank in the run; `first_row`: how many events its recordings before had."""
    linked, ids_from = device.linked, _first_id(place, _LAUNCH, first_row)
    return _arrows(events, device.launch_row[linked], device.row[linked], kept, ids_from=ids_from)


def autograd_arrows(events: EventTable, kept: Bool, *, place: int, first_row: int) -> Flows:
    """From each forward operator to its backward, of the events in the mask `kept` [n]; the rest as above.

    They share a sequence number, which counts the operators of a forward thread. Of the operators that have it the
    backward is the outermost, the forward the last that began before. Where several threads ran forwards, that of a
    backward is the one whose operators have most of its numbers; none where two fit as well.
    Source: `generateForwardBackwardLinks`, torch/csrc/autograd/profiler_kineto.cpp.
    """
    numbered = (events.sequence_number != ABSENT) & kept
    is_backward = numbered & (events.forward_thread > 0)
    forward_rows, backward_rows = np.flatnonzero(numbered & ~is_backward), np.flatnonzero(is_backward)
    head, member = [_NO_ROWS], [_NO_ROWS]
    for thread in np.unique(events.forward_thread[backward_rows]).tolist():
        backward = backward_rows[events.forward_thread[backward_rows] == thread]
        forward = _forward_of_thread(events, forward_rows, events.sequence_number[backward])
        found = _last_forward(events, forward, backward)
        head.append(found[found != ABSENT])
        member.append(backward[found != ABSENT])
    ids_from = _first_id(place, _AUTOGRAD, first_row)
    return _arrows(events, np.concatenate(head), np.concatenate(member), kept, ids_from=ids_from)


_NO_ROWS = np.empty(0, dtype=np.int64)


def _forward_of_thread(events: EventTable, forward: Int64, numbers: Int64) -> Int64:
    """Of the forward operators those of the one track whose numbers fit best; none where two do."""
    tracks = events.tracks_of(forward)
    if len(tracks) <= 1:
        return forward
    fits = forward[np.isin(events.sequence_number[forward], numbers)]
    count = np.bincount(events.track[fits], minlength=len(events.tracks))
    best = np.flatnonzero(count == count.max())
    return forward[events.track[forward] == best[0]] if len(best) == 1 else _NO_ROWS


def _last_forward(events: EventTable, forward: Int64, backward: Int64) -> Int64:
    """int64 [k]: of each backward operator, int64 [k], the forward one, or -1; also for one inside of another of its
    number, which is a part of the same backward."""
    rows = np.concatenate((forward, backward))
    rows = rows[np.lexsort((-events.duration_ns[rows], events.start_ns[rows], events.sequence_number[rows]))]
    number, is_backward = events.sequence_number[rows], events.forward_thread[rows] > 0
    last = np.maximum.accumulate(np.where(is_backward, ABSENT, np.arange(len(rows))))
    found = np.where((last != ABSENT) & (number[last] == number), rows[last], ABSENT)
    inside = np.zeros(len(rows), dtype=np.bool_)
    inside[1:] = is_backward[:-1] & (number[1:] == number[:-1]) & (events.start_ns[rows[1:]] < events.end_ns[rows[:-1]])
    found[inside] = ABSENT
    of_row = np.full(len(events), ABSENT, dtype=np.int64)
    of_row[rows] = found
    return np.asarray(of_row[backward])


def _arrows(events: EventTable, head: Int64, member: Int64, kept: Bool, *, ids_from: int) -> Flows:
    """From each row in `head`, int64 [k], to the row in `member`, int64 [k]; of several members through the earlier."""
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
