"""When which groups of a rank communicate, and which of them the rank waits for.

The communication time of the complete steps is divided by what is in flight. From these rows the exact time of any set
of groups follows, with overlaps counted once.

Exposed time is charged to one of the collectives in flight, the one that holds the rank up:

* among those that end before compute continues, the last to end: without the others, compute could not have continued
  earlier;
* if none ends before that, the last to end.

    compute     ####                      ####
    tp              ======                        charged: tp to its end, although dp is in flight,
    dp            ==================              then dp
    pp                  ======================    nothing: compute continues before it ends
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tracekit.analysis.communication.parts import InFlight, InFlightTime
from tracekit.analysis.timeline.lanes import Lanes, complete_steps
from tracekit.limits import limits
from tracekit.model.communication import KINDS, CommunicationEvents
from tracekit.model.events import ABSENT, Int64
from tracekit.model.intervals import Intervals
from tracekit.model.summary import StepParts

_MESSAGES = tuple(KINDS.index(kind) for kind in ("send", "recv", "send_recv"))
_NEVER_NS = np.iinfo(np.int64).max

__all__ = ["in_flight_times", "is_too_much_in_flight"]


def in_flight_times(lanes: Lanes, steps: Sequence[StepParts]) -> list[InFlightTime]:
    """Return rows over the complete steps among `steps`.

    The rows with `charged` sum to the exposed communication of these steps. They do not tell groups apart where
    `is_too_much_in_flight`.
    """
    communication, inside = lanes.communication_events, complete_steps(lanes, steps).time
    distinct, which = _distinct_in_flight(communication)
    if is_too_much_in_flight(communication):
        distinct, which = [InFlight(group=None, messages=False)], np.zeros_like(which)
    start_ns, duration_ns = _pieces(lanes, inside)
    exposed = ~lanes.compute.covers(start_ns)
    # For each piece, the latest end of communication that ends before compute continues, and of any that outlasts the
    # piece; and the index of what ends then.
    ends_ns = np.full((2, len(start_ns)), ABSENT, dtype=np.int64)
    holder = np.full((2, len(start_ns)), ABSENT, dtype=np.int64)
    pieces_of: list[Int64] = []
    after_ns = _after_compute(lanes)
    by_number = np.argsort(which, kind="stable")
    for number, rows in enumerate(np.split(by_number, np.searchsorted(which[by_number], np.arange(1, len(distinct))))):
        started_ns, ended_ns = communication.start_ns[rows], communication.end_ns[rows]
        here = _covered(started_ns, ended_ns, start_ns)
        pieces_of.append(here)
        for i, since_ns in enumerate((after_ns[rows], started_ns)):
            latest_ns = _latest_end(since_ns, ended_ns, start_ns[here])
            later = latest_ns > ends_ns[i, here]
            holder[i, here[later]] = number
            ends_ns[i, here[later]] = latest_ns[later]
    charged = np.where(exposed, np.where(holder[0] != ABSENT, holder[0], holder[1]), ABSENT)
    members = _Members(pieces_of, len(start_ns))
    first, of_piece = _distinct_sets(members, charged)
    total_ns = np.zeros(len(first), dtype=np.int64)
    np.add.at(total_ns, of_piece, duration_ns)
    sets = [(members.of(piece), int(charged[piece])) for piece in first.tolist()]
    # As rows of a table with a column for each that may be in flight, and the charged one last.
    order = sorted(range(len(sets)), key=lambda i: ([-number for number in sets[i][0]], sets[i][1]))
    return [
        InFlightTime(
            in_flight=tuple(distinct[number] for number in sets[i][0]),
            charged=None if sets[i][1] == ABSENT else distinct[sets[i][1]],
            total_ns=int(total_ns[i]),
        )
        for i in order
    ]


class _Members:
    """What is in flight in each of p pieces: ascending numbers, for piece i `size[i]` of them from `begin[i]` on."""

    def __init__(self, pieces_of: Sequence[Int64], pieces: int) -> None:
        piece = np.concatenate([*pieces_of, np.empty(0, dtype=np.int64)])
        order = np.argsort(piece, kind="stable")
        self.numbers = np.repeat(np.arange(len(pieces_of)), [len(here) for here in pieces_of])[order]
        self.size = np.bincount(piece, minlength=pieces)
        self.begin = np.cumsum(self.size) - self.size

    def of(self, piece: int) -> list[int]:
        begin = self.begin[piece]
        numbers: list[int] = self.numbers[begin : begin + self.size[piece]].tolist()
        return numbers


def _distinct_sets(members: _Members, charged: Int64) -> tuple[Int64, Int64]:
    """Return the first piece of each distinct set of members and charged one, and for each piece the index of its set.

    Pieces with the same first k members have the same label, for k = 1, 2, ... So the time is linear in the members.
    """
    label, labels = charged - ABSENT, int(charged.max(initial=ABSENT)) - ABSENT + 1
    left = np.flatnonzero(members.size)
    place = 0
    while len(left):
        number = members.numbers[members.begin[left] + place]
        pairs, of_left = np.unique(label[left] * (int(number.max()) + 1) + number, return_inverse=True)
        label[left] = labels + of_left.reshape(-1)
        labels += len(pairs)
        place += 1
        left = left[members.size[left] > place]
    _, first, of_piece = np.unique(label, return_index=True, return_inverse=True)
    return first, of_piece.reshape(-1)


def is_too_much_in_flight(communication: CommunicationEvents) -> bool:
    """Return whether the events overlap so much that listing what is in flight, and when, would exceed the limit."""
    events = len(communication.start_ns)
    time_ns = np.concatenate((communication.end_ns, communication.start_ns))
    change = np.repeat([-1, 1], events)[np.argsort(time_ns, kind="stable")]
    return 2 * events * int(np.cumsum(change).max(initial=0)) > limits().in_flight


def _distinct_in_flight(communication: CommunicationEvents) -> tuple[list[InFlight], Int64]:
    """Return what is ever in flight, and the index into that of each event.

    The first of equals is charged. So the order must not depend on events or numbers of ranks.
    """
    each, which = np.unique(
        2 * communication.group.astype(np.int64) + np.isin(communication.kind, _MESSAGES), return_inverse=True
    )
    distinct = [
        InFlight(group=None if number < 0 else communication.groups[number // 2], messages=bool(number % 2))
        for number in each.tolist()
    ]
    order = sorted(range(len(distinct)), key=lambda i: _sorting(distinct[i]))
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    return [distinct[i] for i in order], place[which.reshape(-1)]


def _sorting(traffic: InFlight) -> tuple[object, ...]:
    group = traffic.group
    known = ("", "", 0) if group is None else (group.description, group.name, len(group.ranks))
    return (*known, traffic.messages)


def _pieces(lanes: Lanes, inside: Intervals) -> tuple[Int64, Int64]:
    """Return start and duration of the pieces of communication time in which nothing begins or ends."""
    communication, time = lanes.communication_events, lanes.communication & inside
    compute = lanes.compute & time
    edges_ns = np.sort(
        np.concatenate(
            (communication.start_ns, communication.end_ns, compute.start_ns, compute.end_ns, time.start_ns, time.end_ns)
        ),
        kind="stable",  # faster, as they are a few sorted ones
    )
    start_ns, duration_ns = edges_ns[:-1], np.diff(edges_ns)
    inside_time = time.covers(start_ns) & (duration_ns > 0)
    return start_ns[inside_time], duration_ns[inside_time]


def _after_compute(lanes: Lanes) -> Int64:
    """Return the start of the part of each event after the last compute before its end: int64 [events].

    It is after the end of an event that has no such part.
    """
    communication, compute = lanes.communication_events, lanes.compute
    last = np.searchsorted(compute.start_ns, communication.end_ns, side="left") - 1
    since_ns = np.concatenate((compute.end_ns, [-_NEVER_NS]))[last]
    return np.maximum(communication.start_ns, since_ns)


def _covered(start_ns: Int64, end_ns: Int64, pieces_ns: Int64) -> Int64:
    """Return the pieces, by their ascending starts, that begin inside of an interval: ascending indexes."""
    inside = Intervals.union_of(start_ns, end_ns)
    first, stop = np.searchsorted(pieces_ns, inside.start_ns), np.searchsorted(pieces_ns, inside.end_ns)
    count = stop - first
    pieces: Int64 = np.arange(count.sum()) + np.repeat(first - np.cumsum(count) + count, count)
    return pieces


def _latest_end(start_ns: Int64, end_ns: Int64, time_ns: Int64) -> Int64:
    """Return at each time the latest end of the intervals that contain it, or ABSENT: int64 [t]."""
    order = np.argsort(start_ns, kind="stable")
    reach_ns = np.concatenate(([ABSENT], np.maximum.accumulate(end_ns[order])))
    latest_ns = reach_ns[np.searchsorted(start_ns[order], time_ns, side="right")]
    return np.where(latest_ns > time_ns, latest_ns, ABSENT)
