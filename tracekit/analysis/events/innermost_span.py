"""Which span was open at a moment of host time: the module, phase or action that launched something."""

from __future__ import annotations

import numpy as np

from tracekit.model.events import ABSENT, EventTable, Int64

__all__ = ["innermost_span", "outermost_first"]


def innermost_span(events: EventTable, spans: Int64, track: Int64, time_ns: Int64) -> Int64:
    """Return int64 [n]: the row of the innermost span that was open on `track[i]` at `time_ns[i]`, or ABSENT.

    `spans` (int64 [s]) are rows of the event table, properly nested on each track. A span's end is not part of it.

    Takes O((s + n) log s), and as many rounds over the moments as spans are nested.
    """
    result = np.full(len(time_ns), ABSENT, dtype=np.int64)
    for thread in np.flatnonzero(np.bincount(track + 1, minlength=1)[1:]).tolist():  # ABSENT first
        on_thread = outermost_first(events, spans[events.track[spans] == thread])
        if not len(on_thread):
            continue
        start_ns, end_ns = events.start_ns[on_thread], events.end_ns[on_thread]
        parent = _parents(end_ns, start_ns)
        queries = np.flatnonzero(track == thread)
        place = np.searchsorted(start_ns, time_ns[queries], side="right") - 1
        while len(ended := np.flatnonzero((place >= 0) & (end_ns[place] <= time_ns[queries]))):
            place[ended] = parent[place[ended]]
        result[queries] = np.where(place >= 0, on_thread[place], ABSENT)
    return result


def outermost_first(events: EventTable, rows: Int64) -> Int64:
    """Return `rows`, int64 [k], in order of start; of several with one start, the longest first."""
    start_ns = events.start_ns[rows]
    if (start_ns[1:] < start_ns[:-1]).any():  # in most files the rows of a thread are in order
        order = np.argsort(start_ns, kind="stable")
        rows, start_ns = rows[order], start_ns[order]
    if (start_ns[1:] == start_ns[:-1]).any():  # seldom, and a second key takes several times as long
        rows = rows[np.lexsort((-events.duration_ns[rows], start_ns))]
    return rows


def _parents(end_ns: Int64, start_ns: Int64) -> Int64:
    """Return int64 [s]: the position of the innermost span around each span, or -1.

    The spans are in order of their start.
    """
    parent = np.full(len(end_ns), -1, dtype=np.int64)
    if not (np.maximum.accumulate(end_ns)[:-1] > start_ns[1:]).any():  # none is nested, the usual case
        return parent
    open_spans: list[int] = []
    ends, starts = end_ns.tolist(), start_ns.tolist()
    for i in range(len(ends)):
        while open_spans and ends[open_spans[-1]] <= starts[i]:
            open_spans.pop()
        parent[i] = open_spans[-1] if open_spans else -1
        open_spans.append(i)
    return parent
