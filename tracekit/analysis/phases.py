"""Forward, backward or optimizer: the phase of a step at any point of host time.

Comes in: an event table. Goes out: a function of time. An operator that the autograd engine runs, or anything inside
it (recomputed forwards too), is backward; what runs inside `Optimizer.step` is optimizer; every other operator on the
step's threads is forward. The phase at a time is that of the last such operator to have begun.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracekit.model.events import ABSENT, Bool, EventTable, Int64
from tracekit.model.intervals import Intervals

__all__ = ["PHASES", "PhaseTimeline", "autograd_threads", "phase_timeline"]

PHASES = ("forward", "backward", "optimizer")
_FORWARD, _BACKWARD, _OPTIMIZER = range(3)


@dataclass(frozen=True, kw_only=True)
class PhaseTimeline:
    """Changes of phase: at `change_ns` int64 [c] begins phase `phase` int64 [c], an index into `PHASES`."""

    change_ns: Int64
    phase: Int64

    def at(self, time_ns: Int64) -> Int64:
        """int64 [n]: index into `PHASES`, or -1 before the first operator."""
        position = np.searchsorted(self.change_ns, time_ns, side="right") - 1
        if not len(self.change_ns):
            return np.full(len(time_ns), -1, dtype=np.int64)
        return np.where(position >= 0, self.phase[np.maximum(position, 0)], -1)


def _is_backward_operator(events: EventTable) -> Bool:
    engine = events.named(lambda name: name.startswith("autograd::engine::evaluate_function"))
    linked: Bool = (events.forward_thread != ABSENT) & (events.forward_thread != 0)
    return (engine | linked) & events.in_category("cpu_op", "Operator")


def autograd_threads(events: EventTable) -> Int64:
    """Tracks on which the autograd engine ran operators."""
    return np.unique(events.track[_is_backward_operator(events)]).astype(np.int64)


def phase_timeline(events: EventTable, threads: Int64) -> PhaseTimeline:
    """The timeline over the tracks in `threads` (the step's and the autograd engine's)."""
    on_threads = np.isin(events.track, threads)
    operator = events.in_category("cpu_op", "Operator") & on_threads
    backward = _is_backward_operator(events) & on_threads
    steps = events.named(lambda name: name.startswith(("Optimizer.step#", "Optimizer.zero_grad#")))
    optimizer = steps & on_threads & ~events.in_category("gpu_user_annotation")
    end_ns = events.end_ns
    forward = operator & ~backward
    for track in threads:
        here = events.track == track
        rows = np.flatnonzero(forward & here)
        inside = _union(events, end_ns, backward & here) | _union(events, end_ns, optimizer & here)
        forward[rows] = ~inside.covers(events.start_ns[rows])
    times = [events.start_ns[forward], events.start_ns[backward], events.start_ns[optimizer]]
    phases = [
        np.full(len(t), phase, dtype=np.int64)
        for phase, t in zip((_FORWARD, _BACKWARD, _OPTIMIZER), times, strict=True)
    ]
    change_ns, phase = np.concatenate(times), np.concatenate(phases)
    order = np.argsort(change_ns, kind="stable")
    change_ns, phase = change_ns[order], phase[order]
    kept = np.ones(len(phase), dtype=np.bool_)
    kept[1:] = phase[1:] != phase[:-1]
    return PhaseTimeline(change_ns=change_ns[kept], phase=phase[kept])


def _union(events: EventTable, end_ns: Int64, mask: Bool) -> Intervals:
    return Intervals.union_of(events.start_ns[mask], end_ns[mask])
