"""When the device ran what the host launched in a span of host time."""

from __future__ import annotations

import numpy as np

from tracekit.model.events import EventTable, Int64

__all__ = ["device_extent"]


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
