"""Forward, backward or optimizer: the phase of a step at any point of host time.

Comes in: an event table and the starts of its steps. Goes out: a function of time. A step begins with forward. An
operator that joins the autograd graph (it has a sequence number) and a wrapper's forward are forward; what the
autograd engine runs, and anything inside it (recomputed forwards too), is backward; `Optimizer.step` is optimizer; what
a data loader runs is none of them. The phase at a time is that of the last of these to have begun: what runs after the
backward without a graph, such as copies of reduced gradients, still belongs to it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracekit.model.events import ABSENT, Bool, EventTable, Int64
from tracekit.model.intervals import EMPTY, Intervals
from tracekit.model.spans import DATA_SPAN, engine_span, optimizer_span

__all__ = ["PHASES", "PhaseTimeline", "autograd_threads", "data_loading", "phase_timeline"]

PHASES = ("forward", "backward", "optimizer")
_FORWARD, _BACKWARD, _OPTIMIZER = range(3)
_DATA_LOADERS = (DATA_SPAN, "enumerate(DataLoader)#")
# Wrappers communicate at their beginning, before any operator joins the graph.
_FORWARD_LABELS = (
    "DistributedDataParallel.forward",
    "FullyShardedDataParallel.forward",
    "FSDP::pre_forward",
    engine_span("forward"),
)
_BACKWARD_LABELS = frozenset({engine_span("backward")})  # with the reductions after autograd has ended
_OPTIMIZER_LABELS = ("Optimizer.step#", optimizer_span("step"))


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


def _joins_graph(events: EventTable, ran_backward: Bool) -> Bool:
    """Operators that made a node of the autograd graph. All of them show the number that the next node of their thread
    is to have; the last one to show it is the one whose node it became. The thread's last number nobody may have taken,
    if nothing in `ran_backward` [n] has it.
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
    """Tracks on which the autograd engine ran operators."""
    return events.tracks_of(_is_backward_operator(events))


def data_loading(events: EventTable, thread: int) -> Intervals:
    """When the track `thread` was in a data loader: torch's, or one that the probe wraps."""
    if thread == ABSENT:
        return EMPTY
    loads = events.named(lambda name: name.startswith(_DATA_LOADERS)) & (events.track == thread)
    return Intervals.of_events(events, loads)


def phase_timeline(events: EventTable, threads: Int64, step_start_ns: Int64) -> PhaseTimeline:
    """The timeline over the tracks in `threads` (the step's and the autograd engine's); step_start_ns: int64 [s]."""
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
