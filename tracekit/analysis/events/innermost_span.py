"""Which span was open at a moment of host time: the module, phase or action in which something was launched.

Comes in: spans of an event table and (track, time) pairs. Goes out: for each pair the innermost span around it.
"""

from __future__ import annotations

import numpy as np

from tracekit.model.events import ABSENT, EventTable, Int64

__all__ = ["innermost_span"]


def innermost_span(events: EventTable, spans: Int64, track: Int64, time_ns: Int64) -> Int64:
    """int64 [n]: of the event rows `spans` (int64 [s], nested on each track) the one that began last among those open
    on `track[i]` at `time_ns[i]`, ends excluded; ABSENT where none was.

    O((s + n) log s) and as many rounds over the pairs as spans are nested deep.
    """
    result = np.full(len(time_ns), ABSENT, dtype=np.int64)
    for here in np.unique(track[track != ABSENT]):
        own = spans[events.track[spans] == here]
        # Of spans that begin together the longest is the outermost.
        own = own[np.lexsort((-events.duration_ns[own], events.start_ns[own]))]
        if not len(own):
            continue
        start_ns, end_ns = events.start_ns[own], events.end_ns[own]
        parent = _parents(end_ns, start_ns)
        asked = np.flatnonzero(track == here)
        place = np.searchsorted(start_ns, time_ns[asked], side="right") - 1
        while len(left := np.flatnonzero((place >= 0) & (end_ns[place] <= time_ns[asked]))):
            place[left] = parent[place[left]]
        result[asked] = np.where(place >= 0, own[place], ABSENT)
    return result


def _parents(end_ns: Int64, start_ns: Int64) -> Int64:
    """int64 [s]: for spans in order of their beginning, the position of the last earlier one that ends later; or -1."""
    parent = np.full(len(end_ns), -1, dtype=np.int64)
    if not (np.maximum.accumulate(end_ns)[:-1] > start_ns[1:]).any():  # one after the other, as most are
        return parent
    open_spans: list[int] = []
    ends, starts = end_ns.tolist(), start_ns.tolist()
    for i in range(len(ends)):
        while open_spans and ends[open_spans[-1]] <= starts[i]:
            open_spans.pop()
        parent[i] = open_spans[-1] if open_spans else -1
        open_spans.append(i)
    return parent
