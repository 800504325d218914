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
from tracekit.model.communication import KINDS, CommunicationEvents
from tracekit.model.events import ABSENT, Bool, Int64
from tracekit.model.intervals import Intervals
from tracekit.model.summary import StepParts

_MESSAGES = tuple(KINDS.index(kind) for kind in ("send", "recv", "send_recv"))
_NEVER_NS = np.iinfo(np.int64).max

__all__ = ["in_flight_times"]


def in_flight_times(lanes: Lanes, steps: Sequence[StepParts]) -> list[InFlightTime]:
    """Return rows over the complete steps among `steps`.

    The rows with `charged` sum to the exposed communication of these steps.
    """
    communication, inside = lanes.communication_events, complete_steps(lanes, steps).time
    distinct, which = _distinct_in_flight(communication)
    start_ns, duration_ns = _pieces(lanes, inside)
    exposed = ~lanes.compute.covers(start_ns)
    in_flight = np.zeros((len(start_ns), len(distinct)), dtype=np.bool_)
    # For each piece, the latest end of communication that ends before compute continues, and of any that outlasts the
    # piece; and the index of what ends then.
    ends_ns = np.full((2, len(start_ns)), ABSENT, dtype=np.int64)
    holder = np.full((2, len(start_ns)), ABSENT, dtype=np.int64)
    for number in range(len(distinct)):
        mask = which == number
        outlasting = _latest_end(communication.start_ns[mask], communication.end_ns[mask], start_ns)
        in_flight[:, number] = outlasting != ABSENT
        for i, latest_ns in enumerate((_latest_end(*_after_compute(lanes, mask), start_ns), outlasting)):
            holder[i, latest_ns > ends_ns[i]] = number
            ends_ns[i] = np.maximum(ends_ns[i], latest_ns)
    charged = np.where(exposed, np.where(holder[0] != ABSENT, holder[0], holder[1]), ABSENT)
    columns = np.concatenate((in_flight, charged[:, None]), axis=1)
    different, of_row = _different_rows(columns)
    total_ns = np.zeros(len(different), dtype=np.int64)
    np.add.at(total_ns, of_row, duration_ns)
    return [
        InFlightTime(
            in_flight=tuple(distinct[i] for i in np.flatnonzero(row[:-1])),
            charged=None if row[-1] == ABSENT else distinct[row[-1]],
            total_ns=length_ns,
        )
        for row, length_ns in zip(different, total_ns.tolist(), strict=True)
    ]


def _different_rows(columns: Int64) -> tuple[Int64, Int64]:
    """Return the distinct rows, sorted, and for each row the index of its equal. np.unique compares byte by byte."""
    order = np.lexsort(columns.T[::-1])
    ordered = columns[order]
    new = (ordered != np.roll(ordered, 1, axis=0)).any(axis=1)
    new[:1] = True
    of_row = np.empty(len(columns), dtype=np.int64)
    of_row[order] = np.cumsum(new) - 1
    return ordered[new], of_row


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


def _after_compute(lanes: Lanes, mask: Bool) -> tuple[Int64, Int64]:
    """Return the part, if any, of each event in `mask` after the last compute before its end."""
    communication, compute = lanes.communication_events, lanes.compute
    start_ns, end_ns = communication.start_ns[mask], communication.end_ns[mask]
    last = np.searchsorted(compute.start_ns, end_ns, side="left") - 1
    since_ns = np.concatenate((compute.end_ns, [-_NEVER_NS]))[last]
    return np.maximum(start_ns, since_ns), end_ns


def _latest_end(start_ns: Int64, end_ns: Int64, time_ns: Int64) -> Int64:
    """Return at each time the latest end of the intervals that contain it, or ABSENT: int64 [t]."""
    order = np.argsort(start_ns, kind="stable")
    reach_ns = np.concatenate(([ABSENT], np.maximum.accumulate(end_ns[order])))
    latest_ns = reach_ns[np.searchsorted(start_ns[order], time_ns, side="right")]
    return np.where(latest_ns > time_ns, latest_ns, ABSENT)
