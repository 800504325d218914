"""The backward passes of one rank whose gradients its training loop reduces by hand, as a replay needs them.

A gradient is there when the autograd engine accumulates it. A pass lasts until the next one of its step begins, so that
reductions after the backward pass belong to it.

Where the rank waits for a reduction, what follows is late by that wait. A `free` time is what it would be without the
waits since the pass began:

    measured  |--backward--|== all-reduce ==|div|== all-reduce ==|div|
    free      |--backward--||div||div|
"""

from __future__ import annotations

import numpy as np

from tracekit.analysis.ddp.parts import AccumulatedGradients, ManualReductions
from tracekit.analysis.ddp.per_rank.manual_gradients import reductions_by_hand
from tracekit.analysis.events.phases import PhaseTimeline
from tracekit.analysis.events.shapes import recorded_shapes
from tracekit.analysis.timeline.lanes import Lanes
from tracekit.analysis.timeline.steps import device_starts
from tracekit.model.communication import KINDS
from tracekit.model.events import ABSENT, Bool, DecodedTrace, Int32, Int64
from tracekit.model.intervals import Intervals
from tracekit.model.spans import BACKWARD_SPAN

__all__ = ["manual_passes"]

_ACCUMULATES = "torch::autograd::AccumulateGrad"


def manual_passes(
    trace: DecodedTrace, lanes: Lanes, phases: PhaseTimeline
) -> tuple[AccumulatedGradients, ManualReductions]:
    """Return the gradients and the reductions of the passes that have both.

    Both are empty if another kind of collective than all-reduces takes part, or if no shapes are recorded.
    """
    events, communication = trace.events, lanes.communication_events
    which = np.flatnonzero(reductions_by_hand(trace, lanes, phases) & lanes.counted & (lanes.window >= 0))
    which = which[np.argsort(communication.launch_ns[which], kind="stable")]
    if not len(which) or (communication.kind[which] != KINDS.index("all_reduce")).any():
        return AccumulatedGradients.empty(), ManualReductions.empty()
    passes = np.sort(events.start_ns[events.named(BACKWARD_SPAN.__eq__) & events.on_tracks(lanes.threads)])
    shapes = recorded_shapes(events)
    gradients = np.array([row for row in np.flatnonzero(events.named(_ACCUMULATES.__eq__)).tolist() if row in shapes])
    if not len(passes) or not len(gradients):
        return AccumulatedGradients.empty(), ManualReductions.empty()
    gradients = gradients[np.argsort(events.start_ns[gradients], kind="stable")]
    launch_ns, end_ns = communication.launch_ns[which], communication.end_ns[which]
    of_gradient, of_reduction = (_latest(passes, times) for times in (events.start_ns[gradients], launch_ns))
    both = np.intersect1d(of_gradient, of_reduction[_same_window(lanes, passes, of_reduction, launch_ns)])
    gradients, of_gradient = gradients[kept := np.isin(of_gradient, both)], of_gradient[kept]
    which, of_reduction = which[kept := np.isin(of_reduction, both)], of_reduction[kept]
    launch_ns, end_ns = communication.launch_ns[which], communication.end_ns[which]
    waited = Intervals.union_of(communication.start_ns[which], end_ns) - lanes.compute

    def free_ns(times_ns: Int64, of_pass: Int64) -> Int64:
        return times_ns - waited.covered_ns(np.minimum(passes[of_pass], times_ns), times_ns)

    ready_ns, begin_ns = events.end_ns[gradients], launch_ns
    if lanes.device == "gpu":
        ready_ns, begin_ns = (
            device_starts(events, t, lanes.device_events, lanes.computes) for t in (ready_ns, launch_ns)
        )
    step, number = _numbered(lanes, passes)
    return (
        AccumulatedGradients(
            step=step[of_gradient],
            backward_pass=number[of_gradient],
            elements=np.array([shapes[row].elements for row in gradients.tolist()], dtype=np.int64),
            free_ns=free_ns(ready_ns, of_gradient),
        ),
        ManualReductions(
            step=step[of_reduction],
            backward_pass=number[of_reduction],
            size_bytes=communication.size_bytes[which],
            launch_ns=launch_ns,
            start_ns=communication.start_ns[which],
            end_ns=end_ns,
            free_launch_ns=free_ns(begin_ns, of_reduction),
            free_end_ns=np.where(lanes.compute.covers(end_ns - 1), ABSENT, free_ns(end_ns, of_reduction)),
        ),
    )


def _latest(passes: Int64, times_ns: Int64) -> Int64:
    """Return the index of the last pass that began before each time, or -1; int64 [n]."""
    return np.asarray(np.searchsorted(passes, times_ns, side="right") - 1)


def _same_window(lanes: Lanes, passes: Int64, of_pass: Int64, times_ns: Int64) -> Bool:
    """Return a mask [n] of the times that lie in the same step window as their pass."""
    window = lanes.windows.index_of(passes[np.maximum(of_pass, 0)])
    return np.asarray((of_pass >= 0) & (window >= 0) & (window == lanes.windows.index_of(times_ns)))


def _numbered(lanes: Lanes, passes: Int64) -> tuple[Int64, Int32]:
    """Return the step of each pass, int64 [p], and its number among those of the step, int32 [p].

    Both mean nothing for a pass outside all steps. passes: int64 [p] in ascending order.
    """
    window = lanes.windows.index_of(passes)
    # Passes outside all steps have the window -1, so `window` is not sorted.
    _, first, place = np.unique(window, return_index=True, return_inverse=True)
    return lanes.windows.step[window].astype(np.int64), (np.arange(len(passes)) - first[place]).astype(np.int32)
