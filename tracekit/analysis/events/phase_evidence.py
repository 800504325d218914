"""What a trace shows of forward, backward and optimizer: the operators and spans of each.

* Forward: an operator that becomes part of the autograd graph (it has a sequence number), a wrapper's forward, a module
  that the step calls. What runs inside backward, in a data loader or in an evaluation is none: a forward may be
  computed again.
* Backward: spans in which the autograd engine runs nodes, the call of a backward pass, graphs of compiled autograd.
* Optimizer: `Optimizer.step`, gradient clipping, the actions of a gradient scaler.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracekit.analysis.events.pauses.pause_times import evaluation_evidence
from tracekit.model.events import ABSENT, Bool, EventTable, Int64
from tracekit.model.intervals import EMPTY, Intervals
from tracekit.model.spans import (
    BACKWARD_SPAN,
    DATA_SPAN,
    LABEL_PREFIX,
    engine_span,
    parse_forward_span,
    parse_optimizer_span,
)

__all__ = [
    "AUTOGRAD_NODE_PREFIX",
    "PhaseEvidence",
    "autograd_threads",
    "data_loading",
    "is_autograd_node",
    "phase_evidence",
]

_DATA_LOADERS = (DATA_SPAN, "enumerate(DataLoader)#")
_FORWARD, _BACKWARD_CALL, _COMPILED_BACKWARD, _UPDATE, _ZEROING, _GRADIENTS = range(6)
# Lightning's PyTorchProfiler writes these around the training step and the backward pass of each batch.
_LIGHTNING = "[pl][profile][Strategy]"
# In order: the first that a name begins with counts.
_PREFIXES = {
    # Wrappers communicate at their start, before any operator becomes part of the graph.
    "DistributedDataParallel.forward": _FORWARD,
    "FullyShardedDataParallel.forward": _FORWARD,
    "FSDP::pre_forward": _FORWARD,
    engine_span("forward"): _FORWARD,
    # They include what follows the last node, such as reductions of gradients.
    engine_span("backward"): _BACKWARD_CALL,
    BACKWARD_SPAN: _BACKWARD_CALL,
    # The id of a graph that compiled autograd made begins with "!" (torch._guards.CompileId).
    "Torch-Compiled Region: !": _COMPILED_BACKWARD,
    "Optimizer.step#": _UPDATE,
    "Optimizer.zero_grad#": _ZEROING,
    # What clips gradients and unscales them, where no span is around it. Others may take norms as well.
    "aten::_foreach_norm": _GRADIENTS,
    "aten::linalg_vector_norm": _GRADIENTS,
    "aten::_amp_foreach_non_finite_check_and_unscale_": _GRADIENTS,
}
_ANY_PREFIX = (*_PREFIXES, LABEL_PREFIX, _LIGHTNING)
_GLOO_SPAN = "gloo:"

AUTOGRAD_NODE_PREFIX = "autograd::engine::evaluate_function: "
"""What the name of a span of an autograd node begins with; the node's name follows."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PhaseEvidence:
    """What the threads of the step and of autograd show.

    Attributes:
        forward_ns: when events of forward begin, ascending, int64 [f].
        forward_call_ns: when the forward of a wrapper or module begins, ascending, int64.
        backward_ns: when events of backward begin, ascending, int64 [b].
        backward_end_ns: int64 [b].
        ends_backward: nothing of the backward pass can follow the event if no later one does, bool [b]. A node on the
            thread of the engine, or with a reduction of Gloo in flight at its end, may be followed by a wait or a copy.
        backward: when any of these events run.
        updates: when `Optimizer.step`, clipping or a gradient scaler runs.
        zeroing: when gradients are set to zero.
        gradient_ns: when operators begin that clip or unscale gradients, outside of backward, ascending, int64 [g].
        optimizer_tracks: the tracks of `updates`.
    """

    forward_ns: Int64
    forward_call_ns: Int64
    backward_ns: Int64
    backward_end_ns: Int64
    ends_backward: Bool
    backward: Intervals
    updates: Intervals
    zeroing: Intervals
    gradient_ns: Int64
    optimizer_tracks: Int64


def phase_evidence(events: EventTable, threads: Int64) -> PhaseEvidence:
    """Return what the tracks in `threads` show: the step's and the autograd engine's."""
    on_host = events.on_tracks(threads) & ~events.in_category("gpu_user_annotation")
    ran_backward = _is_backward_operator(events)
    rows, kind = _phase_spans(events, on_host)
    calls = rows[kind == _BACKWARD_CALL]
    backward_rows = np.concatenate((np.flatnonzero(ran_backward & on_host), rows[kind == _COMPILED_BACKWARD], calls))
    ends = np.repeat([False, True], [len(backward_rows) - len(calls), len(calls)])
    order = np.argsort(events.start_ns[backward_rows], kind="stable")
    backward_rows, ends = backward_rows[order], ends[order]
    forward_rows = np.flatnonzero(_joins_graph(events, ran_backward) & on_host & ~ran_backward)
    forward_calls, gradient_rows = rows[kind == _FORWARD], rows[kind == _GRADIENTS]
    forward_rows = np.concatenate((forward_rows, forward_calls))
    loads = _data_loads(events)
    for track in threads.tolist():
        inside = Intervals.of_events(events, backward_rows[events.track[backward_rows] == track])
        gradient_rows = _outside(inside, events, gradient_rows, track)
        loading = Intervals.of_events(events, loads[events.track[loads] == track])
        evaluating = evaluation_evidence(events, track)
        forward_rows = _outside(inside | loading | evaluating, events, forward_rows, track)
    updating = rows[kind == _UPDATE]
    optimizer_tracks = events.tracks_of(updating)
    return PhaseEvidence(
        forward_ns=np.sort(events.start_ns[forward_rows]),
        forward_call_ns=np.sort(events.start_ns[forward_rows[np.isin(forward_rows, forward_calls)]]),
        backward_ns=events.start_ns[backward_rows],
        backward_end_ns=events.end_ns[backward_rows],
        ends_backward=ends | _ends_at_once(events, backward_rows, optimizer_tracks),
        backward=Intervals.of_events(events, backward_rows),
        updates=Intervals.of_events(events, updating),
        zeroing=Intervals.of_events(events, rows[kind == _ZEROING]),
        gradient_ns=np.sort(events.start_ns[gradient_rows]),
        optimizer_tracks=optimizer_tracks,
    )


def _phase_spans(events: EventTable, on_host: Bool) -> tuple[Int64, Int64]:
    """Return the rows in the mask [n] whose names show a phase, and what each shows, such as `_FORWARD`: int64 [k]."""
    rows = np.flatnonzero(events.named(lambda name: name.startswith(_ANY_PREFIX)) & on_host)
    names, place = np.unique(events.name[rows], return_inverse=True)
    kinds = np.array([_kind(events.strings[name]) for name in names.tolist()], dtype=np.int64)
    kind = kinds[place]
    return rows[kind != ABSENT], kind[kind != ABSENT]


def _kind(name: str) -> int:
    if parse_optimizer_span(name) is not None:
        return _UPDATE
    if parse_forward_span(name) is not None:
        return _FORWARD
    if name.startswith(_LIGHTNING):
        hook = name.rpartition(".")[2]
        return {"training_step": _FORWARD, "backward": _BACKWARD_CALL}.get(hook, ABSENT)
    return next((kind for prefix, kind in _PREFIXES.items() if name.startswith(prefix)), ABSENT)


def autograd_threads(events: EventTable) -> Int64:
    """Return the tracks on which the autograd engine ran operators."""
    return events.tracks_of(_is_backward_operator(events))


def data_loading(events: EventTable, thread: int) -> Intervals:
    """Return when the track `thread` was in a data loader: torch's, or one that the probe wraps."""
    if thread == ABSENT:
        return EMPTY
    loads = _data_loads(events)
    return Intervals.of_events(events, loads[events.track[loads] == thread])


def _data_loads(events: EventTable) -> Int64:
    return np.flatnonzero(events.named(lambda name: name.startswith(_DATA_LOADERS)))


def _ends_at_once(events: EventTable, rows: Int64, tracks: Int64) -> Bool:
    """Return a mask [k] of the `rows` on these tracks at whose end no collective of Gloo is in flight."""
    in_flight = Intervals.of_events(events, events.named(lambda name: name.startswith(_GLOO_SPAN)))
    at_once: Bool = events.on_tracks(tracks)[rows] & ~in_flight.covers(events.end_ns[rows])
    return at_once


def _outside(inside: Intervals, events: EventTable, rows: Int64, track: int) -> Int64:
    """Return the `rows` without those of this track that begin during `inside`."""
    kept: Int64 = rows[(events.track[rows] != track) | ~inside.covers(events.start_ns[rows])]
    return kept


def _is_backward_operator(events: EventTable) -> Bool:
    engine = events.named(is_autograd_node)
    linked = events.forward_thread > 0
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
    of_backward = np.sort(events.sequence_number[ran_backward])
    last = number[ends_track]
    made_node[ends_track] = np.append(of_backward, ABSENT)[np.searchsorted(of_backward, last)] == last
    result = np.zeros(len(events), dtype=np.bool_)
    result[rows[made_node]] = True
    return result


def is_autograd_node(name: str) -> bool:
    """Return whether the event of this name is a node of a backward pass."""
    return name.startswith(AUTOGRAD_NODE_PREFIX)
