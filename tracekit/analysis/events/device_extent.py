"""When the device did what a stretch of host time launched.

Comes in: device events in order of launch, and which of them each stretch launched. Goes out: begin and end of each.
"""

from __future__ import annotations

import numpy as np

from tracekit.model.events import EventTable, Int64

__all__ = ["device_extent"]


def device_extent(
    events: EventTable, rows: Int64, first: Int64, stop: Int64, start_ns: Int64, end_ns: Int64
) -> tuple[Int64, Int64]:
    """int64 [k] each, from the first begin to the last end of rows[first[i]:stop[i]], rows of `events`; where there are
    none start_ns[i] and end_ns[i]."""
    start_ns, end_ns = start_ns.copy(), end_ns.copy()
    some = np.flatnonzero(stop > first)
    if len(some):
        edges = np.stack((first[some], stop[some]), axis=1).ravel()
        # `reduceat` takes no edge behind the last element; every other result is of what lies between the stretches.
        begun_ns = np.append(events.start_ns[rows], np.iinfo(np.int64).max)
        ended_ns = np.append(events.end_ns[rows], np.iinfo(np.int64).min)
        start_ns[some] = np.minimum.reduceat(begun_ns, edges)[::2]
        end_ns[some] = np.maximum.reduceat(ended_ns, edges)[::2]
    return start_ns, end_ns
