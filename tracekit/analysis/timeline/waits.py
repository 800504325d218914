"""When one rank waited for its communication.

If nothing computed when a communication event ended, the rank had waited for it. The wait began with the last of three:
the end of its last compute, the issue of the event, or the beginning of a recorded wait.

On a CPU rank the thread that waited goes on before the thread that communicates has recorded the end of the span. What
computes in the last moment of a span was released by it:

    communicates  |================ all_reduce =================|
    computes    |====|                                        |copy|
                     |---------------- waits -------------------|
"""

from __future__ import annotations

import numpy as np

from tracekit.analysis.timeline.lanes import Lanes
from tracekit.analysis.timeline.parts import Waits
from tracekit.model.communication import KINDS
from tracekit.model.events import DecodedTrace, Int64
from tracekit.model.intervals import Intervals
from tracekit.model.spans import WAIT_SPAN

_NEVER_AWAITED = tuple(KINDS.index(kind) for kind in ("peer_copy", "unclassified"))
# How long before the recorded end of a span of a CPU rank the thread that waits for it may go on: 0.2 ms were seen with
# as many ranks as cores, and a thread of a busy host may have to wait for its turn for longer. To record the end may
# need Python's interpreter lock, which a running thread keeps for 5 ms (sys.getswitchinterval): the end counts as
# recorded so late if the rank had idled for that long. Of a short span, a part.
_RECORDED_LATE_NS = 1_000_000
_LOCKED_NS = 5_500_000
_RECORDED_LATE_PART = 10

__all__ = ["rank_waits"]


def rank_waits(trace: DecodedTrace, lanes: Lanes) -> Waits:
    """Return the waits of one recording."""
    communication, compute = lanes.communication_events, lanes.compute
    awaited = ~np.isin(communication.kind, _NEVER_AWAITED)
    released_ns = _released_ns(lanes)
    awaited &= ~compute.covers(released_ns - 1)
    if not awaited.any():
        return Waits.empty()
    launch_ns, until_ns = communication.launch_ns[awaited], communication.end_ns[awaited]
    since_ns = np.maximum(launch_ns, int(lanes.windows.start_ns.min(initial=np.iinfo(np.int64).max)))
    if len(compute):
        last = np.searchsorted(compute.start_ns, released_ns[awaited], side="left") - 1
        since_ns = np.where(last >= 0, np.maximum(since_ns, compute.end_ns[np.maximum(last, 0)]), since_ns)
    events = trace.events
    spans = Intervals.of_events(events, events.named(WAIT_SPAN.__eq__))
    if lanes.device == "cpu" and len(spans):
        last = np.searchsorted(spans.start_ns, until_ns, side="left") - 1
        covered = (last >= 0) & (spans.end_ns[np.maximum(last, 0)] >= until_ns)
        since_ns = np.where(covered, np.maximum(since_ns, spans.start_ns[np.maximum(last, 0)]), since_ns)
    waits = Intervals.union_of(np.minimum(since_ns, until_ns), until_ns)
    return Waits(since_ns=waits.start_ns, until_ns=waits.end_ns)


def _released_ns(lanes: Lanes) -> Int64:
    """Return from when on each communication event may have released the rank, int64 [n]."""
    communication = lanes.communication_events
    if lanes.device == "gpu":
        return communication.end_ns
    part_ns = (communication.end_ns - communication.start_ns) // _RECORDED_LATE_PART
    late_ns, locked_ns = (np.minimum(longest_ns, part_ns) for longest_ns in (_RECORDED_LATE_NS, _LOCKED_NS))
    idle_ns = _idle_ns(lanes.compute, communication.end_ns - locked_ns)
    released_ns: Int64 = communication.end_ns - np.where(idle_ns >= locked_ns, locked_ns, late_ns)
    return released_ns


def _idle_ns(compute: Intervals, time_ns: Int64) -> Int64:
    """Return for how long nothing computed around each time, from compute to compute; 0 where something did."""
    if not len(compute):
        return np.zeros(len(time_ns), dtype=np.int64)
    last = np.searchsorted(compute.start_ns, time_ns, side="left") - 1
    following = np.minimum(last + 1, len(compute) - 1)
    known = (last >= 0) & (last + 1 < len(compute)) & (compute.end_ns[np.maximum(last, 0)] < time_ns)
    idle_ns = compute.start_ns[following] - compute.end_ns[np.maximum(last, 0)]
    return np.where(known, idle_ns, 0)
