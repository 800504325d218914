"""In which phase of its step a host was at each moment. Every number and track about phases comes from here.

A phase lasts until an event of another phase begins. These events show forward, backward and optimizer:

* Forward: an operator that becomes part of the autograd graph (it has a sequence number), a wrapper's forward, a module
  that the step calls. What runs inside backward, in a data loader or in an evaluation is none: a forward may be
  computed again.
* Backward: spans in which the autograd engine runs nodes, the call of a backward pass, graphs of compiled autograd.
* Optimizer: `Optimizer.step`, gradient clipping, the actions of a gradient scaler.

A step begins with forward. Where the recording shows no backward at all, nothing tells what else runs in its steps:
then only what shows forward begins it, and it ends with the wrapper's or module's call. The rules for the rest:

* `Optimizer.step`, gradient clipping and the actions of a gradient scaler are optimizer, and so is setting gradients to
  zero, after which the phase around it goes on. What follows them is other.
* An optimizer may call a closure that runs forward and backward within `Optimizer.step`, once (Lightning does so) or
  often (L-BFGS). Then the backward pass in it is backward, and the forward before that pass is forward.
* Data loading, checkpoints, evaluation and logging are phases of their own, after which the phase around them goes on
  (`rank/pauses.py`).

So what runs after the backward without a graph, such as copies of reduced gradients, still counts as backward.

`innermost_span` tells which module, phase or action was open when something was launched.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tracekit.model.events import ABSENT, Bool, EventTable, Int64
from tracekit.model.intervals import EMPTY, Intervals
from tracekit.model.spans import (
    BACKWARD_SPAN,
    DATA_SPAN,
    LABEL_PREFIX,
    engine_span,
    parse_forward_span,
    parse_module_span,
    parse_optimizer_span,
)
from tracekit.rank.pauses import PauseTimes, evaluation_evidence, pause_times

PHASES = ("forward", "backward", "optimizer", "evaluation", "checkpoint")
"""The phases of a launch."""
STEP_PHASES = ("data", *PHASES, "logging", "other")
"""The phases of a step."""
_FORWARD, _BACKWARD, _OPTIMIZER, _AFTER, _UNKNOWN = range(5)  # what follows the optimizer is `_AFTER`
_OF_LAUNCH = np.array([_FORWARD, _BACKWARD, _OPTIMIZER, _OPTIMIZER, -1, -1], dtype=np.int64)  # the last is for -1
_OF_STEP = np.array([STEP_PHASES.index(phase) for phase in ("forward", "backward", "optimizer", *["other"] * 3)])
_Change = tuple[int, int]  # time, phase

_DATA_LOADERS = (DATA_SPAN, "enumerate(DataLoader)#")
_FORWARD_CALL, _BEFORE_FORWARD, _MODULE_CALL, _BACKWARD_CALL, _COMPILED_BACKWARD = range(5)
_UPDATE, _ZEROING, _GRADIENTS = range(5, 8)
# Lightning's PyTorchProfiler writes these around the training step and the backward pass of each batch.
_LIGHTNING = "[pl][profile][Strategy]"
# In order: the first that a name begins with counts.
_PREFIXES = {
    # Wrappers communicate at their start, before any operator becomes part of the graph.
    "DistributedDataParallel.forward": _FORWARD_CALL,
    "FullyShardedDataParallel.forward": _FORWARD_CALL,
    "FSDP::pre_forward": _BEFORE_FORWARD,
    engine_span("forward"): _FORWARD_CALL,
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
class PhaseTimeline:
    """When the phase changes.

    Attributes:
        change_ns: ascending, int64 [c].
        launch_phase: of what is launched from then on, as an index into `PHASES`, int64 [c]. What a data loader, or
            logging, launches belongs to the phase around it, and what follows the optimizer to the optimizer.
        step_phase: the phase of the step that begins then, as an index into `STEP_PHASES`, int64 [c].
        pauses: when the step's thread does not train.
    """

    change_ns: Int64
    launch_phase: Int64
    step_phase: Int64
    pauses: PauseTimes

    def at(self, time_ns: Int64) -> Int64:
        """Return int64 [n]: the index into `PHASES` of what is launched at each time; -1 before the first operator."""
        return _latest(self.change_ns, self.launch_phase, time_ns)

    def may_be_forward_at(self, time_ns: Int64) -> Bool:
        """Return bool [n]: whether what is launched at each time is forward, or nothing shows another phase."""
        return np.isin(self.at(time_ns), (PHASES.index("forward"), -1))

    def step_phase_at(self, time_ns: Int64) -> Int64:
        """Return int64 [n]: the index into `STEP_PHASES` at each time."""
        phase = _latest(self.change_ns, self.step_phase, time_ns)
        return np.where(phase < 0, STEP_PHASES.index("other"), phase)


def phase_timeline(events: EventTable, threads: Int64, thread: int, step_start_ns: Int64) -> PhaseTimeline:
    """Return the phases of the tracks in `threads`: that of the step, `thread`, and the autograd engine's.

    `step_start_ns`: int64 [s].
    """
    evidence = phase_evidence(events, threads)
    change_ns, phase = _changes(events, evidence, step_start_ns)
    data = data_loading(events, thread)
    updates, zeroing = evidence.updates, evidence.zeroing
    training_ns = (step_start_ns, evidence.forward_ns, evidence.backward_ns, updates.start_ns, zeroing.start_ns)
    pauses = pause_times(events, thread, data, np.concatenate(training_ns))
    # A later one of these comes before an earlier one.
    within = {"logging": pauses.logging, "data": data, "evaluation": pauses.evaluation, "checkpoint": pauses.checkpoint}
    edges = [edge_ns for time in (zeroing, *within.values()) for edge_ns in (time.start_ns, time.end_ns)]
    at_ns = np.unique(np.concatenate((change_ns, *edges)))
    around = _latest(change_ns, phase, at_ns)
    around[zeroing.covers(at_ns)] = _OPTIMIZER
    step_phase, launch_phase = _OF_STEP[around], _OF_LAUNCH[around]
    for name, time in within.items():
        covered = time.covers(at_ns)
        step_phase[covered] = STEP_PHASES.index(name)
        if name in PHASES:
            launch_phase[covered] = PHASES.index(name)
    return PhaseTimeline(change_ns=at_ns, launch_phase=launch_phase, step_phase=step_phase, pauses=pauses)


def _latest(change_ns: Int64, values: Int64, time_ns: Int64) -> Int64:
    """Return int64 [n]: the value of the last change until each time; -1 before the first."""
    if not len(change_ns):
        return np.full(len(time_ns), -1, dtype=np.int64)
    position = np.searchsorted(change_ns, time_ns, side="right") - 1
    return np.where(position >= 0, values[np.maximum(position, 0)], -1)


def _changes(events: EventTable, evidence: PhaseEvidence, step_start_ns: Int64) -> tuple[Int64, Int64]:
    """Return when the phase changes, apart from data loading and zeroing, and to which phase: int64 [c] each.

    Of the changes at one time the last one counts.
    """
    updates, backward = evidence.updates, evidence.backward
    # An optimizer may also step inside of a backward pass, from a gradient's hook: then backward goes on after it.
    in_backward = backward.covers(updates.start_ns)
    ends_in = np.where(in_backward & backward.covers(updates.end_ns), _BACKWARD, _AFTER)
    first = np.searchsorted(evidence.backward_ns, updates.start_ns, side="left")
    calls_closure = ~in_backward & (np.searchsorted(evidence.backward_ns, updates.end_ns, side="left") > first)
    cut_ns = _cut_update_ns(events, evidence)
    calls_closure |= ~in_backward & (updates.end_ns == cut_ns)
    closures = _in_order(_closure_changes(events, evidence, calls_closure, cut_ns))
    times_ns = (step_start_ns, evidence.forward_ends_ns, evidence.forward_ns, evidence.backward_ns)
    outside = [times[~updates.covers(times)] for times in times_ns]
    begins_with = _FORWARD if len(evidence.backward_ns) else _UNKNOWN
    change_ns, phase = _joined(
        (updates.end_ns, ends_in),
        *(
            (times, np.full(len(times), code))
            for times, code in zip(outside, (begins_with, _UNKNOWN, _FORWARD, _BACKWARD), strict=True)
        ),
        (updates.start_ns, np.full(len(updates), _OPTIMIZER)),
        closures,
    )
    gradients = evidence.gradient_ns
    gradients = gradients[_latest(change_ns, phase, gradients) == _BACKWARD]
    if len(gradients):  # clipping or unscaling after the backward pass begins what the optimizer does
        gradients = gradients[~updates.covers(gradients)]
        change_ns, phase = _joined((change_ns, phase), (gradients, np.full(len(gradients), _OPTIMIZER)))
    is_change = np.ones(len(phase), dtype=np.bool_)
    is_change[1:] = phase[1:] != phase[:-1]
    return change_ns[is_change], phase[is_change]


def _joined(*changes: tuple[Int64, Int64]) -> tuple[Int64, Int64]:
    """Return changes in order of time; of those at one time, in the given order."""
    change_ns = np.concatenate([times for times, _ in changes])
    order = np.argsort(change_ns, kind="stable")
    return change_ns[order], np.concatenate([phases for _, phases in changes])[order].astype(np.int64)


def _in_order(changes: Iterator[_Change]) -> tuple[Int64, Int64]:
    table = np.array(list(changes), dtype=np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def _cut_update_ns(events: EventTable, evidence: PhaseEvidence) -> int:
    """Return the end of the last of the `updates` if the recording may have ended during it, else `ABSENT`.

    Then a forward is called in it, and its thread shows nothing later.
    """
    updates, forward_ns = evidence.updates, evidence.forward_call_ns
    if not len(updates) or not len(forward_ns) or forward_ns[-1] < updates.start_ns[-1]:
        return ABSENT
    last_ns = int(events.start_ns[events.on_tracks(evidence.optimizer_tracks)].max())
    return int(updates.end_ns[-1]) if last_ns < updates.end_ns[-1] else ABSENT


def _closure_changes(
    events: EventTable, evidence: PhaseEvidence, calls_closure: Bool, cut_ns: int
) -> Iterator[_Change]:
    """Yield the changes within the `updates` of a mask [u], which call closures.

    A forward counts if a backward pass follows it, as an update may join the graph as well, or if the recording ended
    before that, at `cut_ns`.
    """
    if not calls_closure.any():
        return
    operators = _outermost_operators(events, evidence.optimizer_tracks)
    in_place = operators[_write_in_place(events, operators)]
    starts_ns, written_ns = events.start_ns[operators], events.end_ns[in_place]
    updates = evidence.updates
    windows = zip(updates.start_ns[calls_closure].tolist(), updates.end_ns[calls_closure].tolist(), strict=True)

    def forward_begins(updating_ns: int, seen_ns: int) -> _Change:
        """Before a forward, updates may run. Then comes the closure, perhaps with Python before its first operator."""
        written = int(np.searchsorted(written_ns, seen_ns, side="right")) - 1
        return (max(updating_ns, int(written_ns[written])) if written >= 0 else updating_ns), _FORWARD

    for begin_ns, end_ns in windows:
        updating_ns = begin_ns
        for forward_ns, first, stop in _passes(evidence, begin_ns, end_ns):
            yield forward_begins(updating_ns, forward_ns)
            yield int(evidence.backward_ns[first]), _BACKWARD
            last = first + int(np.argmax(evidence.backward_end_ns[first:stop]))
            updating_ns = min(int(evidence.backward_end_ns[last]), end_ns)
            if not evidence.ends_backward[last]:
                # What waits for gradients follows the last node, with no operator of its own.
                after = int(np.searchsorted(starts_ns, updating_ns, side="left"))
                if after < len(starts_ns) and starts_ns[after] < end_ns:
                    updating_ns = int(starts_ns[after])
            yield updating_ns, _OPTIMIZER
        if end_ns == cut_ns and updating_ns <= evidence.forward_call_ns[-1] < end_ns:
            seen = int(np.searchsorted(evidence.forward_call_ns, updating_ns, side="left"))
            yield forward_begins(updating_ns, int(evidence.forward_call_ns[seen]))


def _passes(evidence: PhaseEvidence, begin_ns: int, end_ns: int) -> Iterator[tuple[int, int, int]]:
    """Yield the backward passes in a window of time, and when something of the forward before them is first seen.

    Yields that time and the range of the pass among the rows of `evidence`. Passes without a forward between them are
    one.
    """
    backward_ns, forward_ns = evidence.backward_ns, evidence.forward_ns
    first, stop = np.searchsorted(backward_ns, (begin_ns, end_ns), side="left").tolist()
    while first < stop:
        # The next forward is the first one after the beginning of this pass; after that comes the next pass.
        seen = int(np.searchsorted(forward_ns, begin_ns, side="left"))
        forward_seen_ns = int(forward_ns[seen]) if seen < len(forward_ns) else end_ns
        next_forward = int(np.searchsorted(forward_ns, backward_ns[first], side="right"))
        following = stop
        if next_forward < len(forward_ns) and forward_ns[next_forward] < end_ns:
            following = min(stop, int(np.searchsorted(backward_ns, forward_ns[next_forward], side="left")))
        yield min(forward_seen_ns, int(backward_ns[first])), first, following
        begin_ns, first = int(backward_ns[following - 1]) + 1, following


def _outermost_operators(events: EventTable, tracks: Int64) -> Int64:
    """Return the rows of the operators on these tracks that are inside of no other, in order of time."""
    rows = np.flatnonzero(events.in_category("cpu_op") & events.on_tracks(tracks))
    rows = outermost_first(events, rows)
    reach_ns = np.maximum.accumulate(events.end_ns[rows])
    is_outermost = np.append(True, events.start_ns[rows[1:]] >= reach_ns[:-1])[: len(rows)]
    outermost: Int64 = rows[is_outermost]
    return outermost


def _write_in_place(events: EventTable, rows: Int64) -> Bool:
    """Return a mask [k] of the operators in `rows` that change their input, such as `aten::add_`."""
    names = np.unique(events.name[rows])
    in_place = [name for name in names.tolist() if events.strings[name].endswith("_")]
    return np.isin(events.name[rows], in_place)


def outermost(events: EventTable, rows: Int64) -> Int64:
    """Return those of the events of one track that are in no other, in order of time."""
    rows = outermost_first(events, rows)
    reach_ns = np.maximum.accumulate(events.end_ns[rows])
    is_outermost: Bool = np.append(True, events.start_ns[rows][1:] >= reach_ns[:-1])[: len(rows)]
    return rows[is_outermost].astype(np.int64)


def innermost_span(events: EventTable, spans: Int64, track: Int64, time_ns: Int64) -> Int64:
    """Return int64 [n]: the row of the innermost span that was open on `track[i]` at `time_ns[i]`, or ABSENT.

    `spans` (int64 [s]) are rows of the event table, properly nested on each track. A span's end is not part of it.

    Takes O((s + n) log s), and as many rounds over the moments as spans are nested.
    """
    result = np.full(len(time_ns), ABSENT, dtype=np.int64)
    for thread in np.flatnonzero(np.bincount(track + 1, minlength=1)[1:]).tolist():  # ABSENT first
        on_thread = outermost_first(events, spans[events.track[spans] == thread])
        if not len(on_thread):
            continue
        start_ns, end_ns = events.start_ns[on_thread], events.end_ns[on_thread]
        parent = _parents(end_ns, start_ns)
        queries = np.flatnonzero(track == thread)
        index = np.searchsorted(start_ns, time_ns[queries], side="right") - 1
        while len(ended := np.flatnonzero((index >= 0) & (end_ns[index] <= time_ns[queries]))):
            index[ended] = parent[index[ended]]
        result[queries] = np.where(index >= 0, on_thread[index], ABSENT)
    return result


def outermost_first(events: EventTable, rows: Int64) -> Int64:
    """Return `rows`, int64 [k], in order of start; of several with one start, the longest first."""
    start_ns = events.start_ns[rows]
    if (start_ns[1:] < start_ns[:-1]).any():  # in most files the rows of a thread are in order
        order = np.argsort(start_ns, kind="stable")
        rows, start_ns = rows[order], start_ns[order]
    if (start_ns[1:] == start_ns[:-1]).any():  # seldom, and a second key takes several times as long
        rows = rows[np.lexsort((-events.duration_ns[rows], start_ns))]
    return rows


def _parents(end_ns: Int64, start_ns: Int64) -> Int64:
    """Return int64 [s]: the position of the innermost span around each span, or -1.

    The spans are in order of their start.
    """
    parent = np.full(len(end_ns), -1, dtype=np.int64)
    if not (np.maximum.accumulate(end_ns)[:-1] > start_ns[1:]).any():  # none is nested, the usual case
        return parent
    open_spans: list[int] = []
    ends, starts = end_ns.tolist(), start_ns.tolist()
    for i in range(len(ends)):
        while open_spans and ends[open_spans[-1]] <= starts[i]:
            open_spans.pop()
        parent[i] = open_spans[-1] if open_spans else -1
        open_spans.append(i)
    return parent


@dataclass(frozen=True, kw_only=True, eq=False)
class PhaseEvidence:
    """What the threads of the step and of autograd show.

    Attributes:
        forward_ns: when events of forward begin, ascending, int64 [f].
        forward_call_ns: when the forward of a wrapper or module begins, ascending, int64.
        forward_ends_ns: when it ends, int64; none where backward is shown, as forward then goes on until that.
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
    forward_ends_ns: Int64
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
    ran_backward = backward_operators(events)
    rows, kind = _phase_spans(events, on_host)
    calls = rows[kind == _BACKWARD_CALL]
    backward_rows = np.concatenate((np.flatnonzero(ran_backward & on_host), rows[kind == _COMPILED_BACKWARD], calls))
    ends = np.repeat([False, True], [len(backward_rows) - len(calls), len(calls)])
    order = np.argsort(events.start_ns[backward_rows], kind="stable")
    backward_rows, ends = backward_rows[order], ends[order]
    forward_rows = np.flatnonzero(_joins_graph(events, ran_backward) & on_host & ~ran_backward)
    # A module may be called in backward, too, to compute its forward again.
    whole_calls = rows[np.isin(kind, (_FORWARD_CALL, _FORWARD_CALL if len(backward_rows) else _MODULE_CALL))]
    called = Intervals.of_events(events, whole_calls[: 0 if len(backward_rows) else None])
    forward_calls, gradient_rows = np.append(whole_calls, rows[kind == _BEFORE_FORWARD]), rows[kind == _GRADIENTS]
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
        forward_ends_ns=called.end_ns,
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
    """Return the rows in the mask [n] whose names show a phase, and what each shows (`_FORWARD_CALL`): int64 [k]."""
    rows = np.flatnonzero(events.named(lambda name: name.startswith(_ANY_PREFIX)) & on_host)
    names, index = np.unique(events.name[rows], return_inverse=True)
    kinds = np.array([_kind(events.strings[name]) for name in names.tolist()], dtype=np.int64)
    kind = kinds[index]
    return rows[kind != ABSENT], kind[kind != ABSENT]


def _kind(name: str) -> int:
    if parse_optimizer_span(name) is not None:
        return _UPDATE
    if parse_forward_span(name) is not None:
        return _FORWARD_CALL
    if parse_module_span(name) is not None:
        return _MODULE_CALL
    if name.startswith(_LIGHTNING):
        hook = name.rpartition(".")[2]
        return {"training_step": _FORWARD_CALL, "backward": _BACKWARD_CALL}.get(hook, ABSENT)
    return next((kind for prefix, kind in _PREFIXES.items() if name.startswith(prefix)), ABSENT)


def autograd_threads(events: EventTable) -> Int64:
    """Return the tracks on which the autograd engine ran operators."""
    return events.tracks_of(backward_operators(events))


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


def backward_operators(events: EventTable) -> Bool:
    """Return a mask [n] of the operators that run in a backward pass."""
    engine = events.named(is_autograd_node)
    linked = events.forward_thread > 0
    return (engine | linked) & events.in_category("cpu_op")


def _joins_graph(events: EventTable, ran_backward: Bool) -> Bool:
    """Return a mask [n] of the operators that created a node of the autograd graph.

    Every operator shows the number that the next node of its thread will have. So several may show one number, and the
    last of them created the node. The last number of a thread may belong to no node: it counts only if an operator of
    `ran_backward` (mask [n]) has it.
    """
    rows = np.flatnonzero((events.sequence_number != ABSENT) & (events.forward_thread <= 0))
    rows = rows[events.in_category("cpu_op")[rows]]
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
