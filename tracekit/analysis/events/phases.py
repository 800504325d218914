"""The phase of a step at any point of host time: forward, backward or optimizer.

A phase lasts until an event of another phase begins:

* A step begins with forward.
* An operator that becomes part of the autograd graph (it has a sequence number) is forward, and so is a wrapper's
  forward.
* What the autograd engine runs is backward, with everything inside it (recomputed forwards too).
* `Optimizer.step` is optimizer.
* What a data loader runs changes nothing.

So what runs after the backward without a graph, such as copies of reduced gradients, still counts as backward.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracekit.analysis.events.autograd import is_autograd_node
from tracekit.model.events import ABSENT, Bool, EventTable, Int64
from tracekit.model.intervals import EMPTY, Intervals
from tracekit.model.spans import DATA_SPAN, engine_span, optimizer_span

__all__ = ["PHASES", "PhaseTimeline", "autograd_threads", "data_loading", "phase_timeline"]

PHASES = ("forward", "backward", "optimizer")
_FORWARD, _BACKWARD, _OPTIMIZER = range(3)
_DATA_LOADERS = (DATA_SPAN, "enumerate(DataLoader)#")
# Wrappers communicate at their start, before any operator becomes part of the graph.
_FORWARD_LABELS = (
    "DistributedDataParallel.forward",
    "FullyShardedDataParallel.forward",
    "FSDP::pre_forward",
    engine_span("forward"),
)
_BACKWARD_LABELS = frozenset({engine_span("backward")})  # includes the reductions after autograd has ended
_OPTIMIZER_LABELS = ("Optimizer.step#", optimizer_span("step"))


@dataclass(frozen=True, kw_only=True)
class PhaseTimeline:
    """When the phase changes.

    Attributes:
        change_ns: in order, int64 [c].
        phase: the phase that begins then, as an index into `PHASES`, int64 [c].
    """

    change_ns: Int64
    phase: Int64

    def at(self, time_ns: Int64) -> Int64:
        """Return int64 [n]: the index into `PHASES` at each time; -1 before the first operator."""
        position = np.searchsorted(self.change_ns, time_ns, side="right") - 1
        if not len(self.change_ns):
            return np.full(len(time_ns), -1, dtype=np.int64)
        return np.where(position >= 0, self.phase[np.maximum(position, 0)], -1)


def _is_backward_operator(events: EventTable) -> Bool:
    engine = events.named(is_autograd_node)
    linked: Bool = (events.forward_thread != ABSENT) & (events.forward_thread != 0)
    return (engine | linked) & events.in_category("cpu_op", "Operator")


def _joins_graph(events: EventTable, ran_backward: Bool) -> Bool:
    """Return a mask [n] of the operators that created a node of the autograd graph.

    Every operator shows the number that the next node of its thread will have. So several may show one number, and the
    last of them created the node. The last number of a thread may belong to no node: it counts only if an operator of
    `ran_backward` (mask [n]) has it.
    """
    rows = np.flatnonzero((events.sequence_number != ABSENT) & (events.forward_thread <= 0))
    rows = rows[events.in_category("cpu_op", "Operator")[rows]]
    number, track = events.sequence_number[rows], events.track[rows]
    order = np.lexsort((events.start_ns[rows], number, track))
    rows, number, track = rows[order], number[order], track[order]
    is_last = np.ones(len(rows), dtype=np.bool_)
    is_last[:-1] = (number[1:] != number[:-1]) | (track[1:] != track[:-1])
    ends_track = np.ones(len(rows), dtype=np.bool_)
    ends_track[:-1] = track[1:] != track[:-1]
    made_node = is_last.copy()
    made_node[ends_track] = np.isin(number[ends_track], events.sequence_number[ran_backward])
    result = np.zeros(len(events), dtype=np.bool_)
    result[rows[made_node]] = True
    return result


def autograd_threads(events: EventTable) -> Int64:
    """Return the tracks on which the autograd engine ran operators."""
    return events.tracks_of(_is_backward_operator(events))


def data_loading(events: EventTable, thread: int) -> Intervals:
    """Return when the track `thread` was in a data loader: torch's, or one that the probe wraps."""
    if thread == ABSENT:
        return EMPTY
    loads = events.named(lambda name: name.startswith(_DATA_LOADERS)) & (events.track == thread)
    return Intervals.of_events(events, loads)


def phase_timeline(events: EventTable, threads: Int64, step_start_ns: Int64) -> PhaseTimeline:
    """Return the phases of the tracks in `threads`: the step's and the autograd engine's.

    `step_start_ns`: int64 [s].
    """
    on_threads = events.on_tracks(threads)
    on_host = on_threads & ~events.in_category("gpu_user_annotation")
    ran_backward = _is_backward_operator(events)
    backward = (ran_backward & on_threads) | (events.named(_BACKWARD_LABELS.__contains__) & on_host)
    optimizer = events.named(lambda name: name.startswith(_OPTIMIZER_LABELS)) & on_host
    forward_label = events.named(lambda name: name.startswith(_FORWARD_LABELS)) & on_host
    forward = (_joins_graph(events, ran_backward) & on_threads & ~backward) | forward_label
    for track in threads:
        on_track = events.track == track
        rows = np.flatnonzero(forward & on_track)
        inside = Intervals.of_events(events, (backward | optimizer) & on_track) | data_loading(events, int(track))
        forward[rows] = ~inside.covers(events.start_ns[rows])
    times = [step_start_ns, events.start_ns[forward], events.start_ns[backward], events.start_ns[optimizer]]
    phases = (_FORWARD, _FORWARD, _BACKWARD, _OPTIMIZER)
    change_ns = np.concatenate(times)
    phase = np.repeat(phases, [len(t) for t in times])
    order = np.argsort(change_ns, kind="stable")
    change_ns, phase = change_ns[order], phase[order]
    is_change = np.ones(len(phase), dtype=np.bool_)
    is_change[1:] = phase[1:] != phase[:-1]
    return PhaseTimeline(change_ns=change_ns[is_change], phase=phase[is_change])
