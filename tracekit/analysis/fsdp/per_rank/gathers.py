"""How long compute waited for each all-gather of FSDP, and what could have hidden it.

The host comes to use a module at some moment. The first compute kernel launched then waits: it is FSDP's copy out of
the gathered buffer.

    compute stream   blocks.0 |======|         wait          |== blocks.1 ==|
    gathers                    launched      |== blocks.1 ==|

It could have begun when it was launched and the compute before it had ended. From there to the end of the all-gather it
waits. On a CPU rank an all-gather blocks the host: all waits for it that does not run meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tracekit.analysis.events.phases import PhaseTimeline
from tracekit.analysis.fsdp.parts import FsdpGathers
from tracekit.analysis.fsdp.per_rank.labels import fsdp_labels
from tracekit.analysis.timeline.lanes import Lanes, complete_steps
from tracekit.model.communication import KINDS
from tracekit.model.events import ABSENT, DecodedTrace, Int64
from tracekit.model.intervals import Intervals
from tracekit.model.summary import StepParts

__all__ = ["fsdp_gathers"]


def fsdp_gathers(trace: DecodedTrace, lanes: Lanes, phases: PhaseTimeline, steps: Sequence[StepParts]) -> FsdpGathers:
    """Return the all-gathers of the complete steps among `steps`; none where no label shows a use."""
    events, communication = trace.events, lanes.communication_events
    if not len(lanes.compute_rows):
        return FsdpGathers.empty()
    labels = fsdp_labels(events)
    if not len(labels.rows):
        return FsdpGathers.empty()
    enclosing = labels.around(events, communication)
    needed_ns = labels.needed_ns(events, enclosing, communication)
    which = np.flatnonzero((needed_ns != ABSENT) & complete_steps(lanes, steps).counted)
    if not len(which):
        return FsdpGathers.empty()
    # A module with parameters of several types is gathered by several collectives: compute waits for the last.
    by_label = np.lexsort((communication.end_ns[which], enclosing[which]))
    last = np.append(enclosing[which][by_label][1:] != enclosing[which][by_label][:-1], True)
    first = np.insert(last[:-1], 0, True)
    start_ns = np.minimum.reduceat(communication.start_ns[which][by_label], np.flatnonzero(first))
    size_bytes = np.add.reduceat(communication.size_bytes[which][by_label], np.flatnonzero(first))
    unknown = np.logical_or.reduceat(communication.size_bytes[which][by_label] == ABSENT, np.flatnonzero(first))
    size_bytes[unknown] = ABSENT
    gathers = which[by_label][last]
    order = np.argsort(needed_ns[gathers], kind="stable")
    gathers, start_ns, size_bytes = gathers[order], start_ns[order], size_bytes[order]
    end_ns, step = communication.end_ns[gathers], lanes.windows.step[lanes.window[gathers]]
    if lanes.device == "gpu":
        ready_ns, begin_ns = _compute_that_waits(trace, lanes, needed_ns[gathers])
        wait_ns = np.maximum(np.minimum(end_ns, begin_ns) - ready_ns, 0)
    else:
        ready_ns, begin_ns = start_ns, end_ns
        wait_ns = end_ns - start_ns - lanes.compute.covered_ns(start_ns, end_ns)
    followed = np.append(step[1:] == step[:-1], False)
    last_ns = np.maximum(lanes.windows.end_ns[lanes.window[gathers]], begin_ns)
    next_ready_ns = np.where(followed, np.maximum(np.append(ready_ns[1:], 0), begin_ns), last_ns)
    next_begin_ns = np.where(followed, np.append(begin_ns[1:], 0), last_ns)
    busy_ns, done_ns = _other_work(trace, lanes, gathers, begin_ns, next_begin_ns)
    return FsdpGathers(
        step=step,
        module=np.array([labels.at(events, row).module for row in enclosing[gathers].tolist()], dtype=object),
        phase=phases.at(needed_ns[gathers]).astype(np.int32),
        ahead=_modules_ahead(lanes, labels.issued_ns(enclosing, communication)[gathers], needed_ns[gathers]),
        size_bytes=size_bytes,
        transfer_ns=end_ns - start_ns,
        wait_ns=wait_ns,
        span_ns=np.where(followed, next_ready_ns - begin_ns, ABSENT),
        compute_ns=lanes.compute.covered_ns(begin_ns, next_ready_ns),
        busy_ns=busy_ns,
        drain_ns=np.where(followed, ABSENT, np.maximum(done_ns - begin_ns, 0)),
    )


def _modules_ahead(lanes: Lanes, issued_ns: Int64, needed_ns: Int64) -> Int64:
    """Return of how many modules compute was launched between issue and use: int64 [n].

    `needed_ns`: int64 [n], sorted.
    """
    device = lanes.device_events
    launch_ns = np.sort(device.launch_ns[lanes.computes])
    # An all-gather that is issued when it is needed is for the module itself.
    following = np.minimum(np.searchsorted(needed_ns, issued_ns, side="right"), np.arange(len(needed_ns)))
    launched = np.searchsorted(launch_ns, issued_ns) < np.searchsorted(launch_ns, needed_ns[following])
    return np.arange(len(needed_ns)) - following + launched


def _other_work(
    trace: DecodedTrace, lanes: Lanes, gathers: Int64, begin_ns: Int64, end_ns: Int64
) -> tuple[Int64, Int64]:
    """Return how long the stream of each of `gathers` does other work in a window, and when that ends.

    begin_ns, end_ns: int64 [n], the windows. The end is that of the last work that begins in the window.
    """
    communication, stream = lanes.communication_events, trace.events.track[lanes.communication_events.row]
    busy_ns, done_ns = np.zeros(len(gathers), dtype=np.int64), begin_ns.copy()
    for track in np.unique(stream[gathers]):
        other = np.flatnonzero((stream == track) & (communication.kind != KINDS.index("all_gather")))
        here = stream[gathers] == track
        others = Intervals.union_of(communication.start_ns[other], communication.end_ns[other])
        busy_ns[here] = others.covered_ns(begin_ns[here], end_ns[here])
        place = np.searchsorted(others.start_ns, end_ns[here], side="left") - 1
        last_ns = others.end_ns[np.maximum(place, 0)] if len(others) else begin_ns[here]
        done_ns[here] = np.where(place >= 0, last_ns, begin_ns[here])
    return busy_ns, done_ns


def _compute_that_waits(trace: DecodedTrace, lanes: Lanes, needed_ns: Int64) -> tuple[Int64, Int64]:
    """Return when the first compute kernel launched at or after each moment could have begun, and when it did.

    It could have begun when it was launched and the work before it on its stream was done. After the last kernel both
    are its end. int64 [n] each.
    """
    events, device = trace.events, lanes.device_events
    compute = lanes.computes
    order = np.argsort(device.launch_ns[compute], kind="stable")
    row, launch_ns = device.row[compute][order], device.launch_ns[compute][order]
    # FSDP copies gathered parameters on a separate stream: that is compute, too, but not what waits.
    ready_ns = launch_ns.copy()
    for stream in events.tracks_of(row):
        on_stream = np.flatnonzero(events.track[row] == stream)
        reach_ns = np.maximum.accumulate(events.end_ns[row[on_stream]])
        ready_ns[on_stream[1:]] = np.maximum(launch_ns[on_stream[1:]], reach_ns[:-1])
    place = np.searchsorted(launch_ns, needed_ns, side="left")
    there, at = place < len(row), np.minimum(place, len(row) - 1)
    begin_ns = np.where(there, events.start_ns[row[at]], events.end_ns[row[-1]])
    return np.minimum(np.where(there, ready_ns[at], begin_ns), begin_ns), begin_ns
