"""When one rank waited for its communication.

If nothing computed when a communication event ended, the rank had waited for it. The wait began with the last of three:
the end of its last compute, the issue of the event, or the beginning of a recorded wait.
"""

from __future__ import annotations

import numpy as np

from tracekit.analysis.timeline.lanes import Lanes
from tracekit.analysis.timeline.parts import Waits
from tracekit.model.communication import KINDS
from tracekit.model.events import DecodedTrace
from tracekit.model.intervals import Intervals
from tracekit.model.spans import WAIT_SPAN

_NEVER_AWAITED = tuple(KINDS.index(kind) for kind in ("peer_copy", "unclassified"))

__all__ = ["rank_waits"]


def rank_waits(trace: DecodedTrace, lanes: Lanes) -> Waits:
    """Return the waits of one recording."""
    communication, compute = lanes.communication_events, lanes.compute
    awaited = ~np.isin(communication.kind, _NEVER_AWAITED)
    awaited[awaited] = ~compute.covers(communication.end_ns[awaited] - 1)
    if not awaited.any():
        return Waits.empty()
    launch_ns, until_ns = communication.launch_ns[awaited], communication.end_ns[awaited]
    since_ns = np.maximum(launch_ns, int(lanes.windows.start_ns.min(initial=np.iinfo(np.int64).max)))
    if len(compute):
        last = np.searchsorted(compute.start_ns, until_ns, side="left") - 1
        since_ns = np.where(last >= 0, np.maximum(since_ns, compute.end_ns[np.maximum(last, 0)]), since_ns)
    events = trace.events
    spans = Intervals.of_events(events, events.named(WAIT_SPAN.__eq__))
    if lanes.device == "cpu" and len(spans):
        last = np.searchsorted(spans.start_ns, until_ns, side="left") - 1
        covered = (last >= 0) & (spans.end_ns[np.maximum(last, 0)] >= until_ns)
        since_ns = np.where(covered, np.maximum(since_ns, spans.start_ns[np.maximum(last, 0)]), since_ns)
    waits = Intervals.union_of(np.minimum(since_ns, until_ns), until_ns)
    return Waits(since_ns=waits.start_ns, until_ns=waits.end_ns)
