"""The phases of a step on the host. Every number and track about phases comes from here.

A phase lasts until an event of another phase begins (`events/phase_evidence.py` says what is one):

* A step begins with forward.
* `Optimizer.step`, gradient clipping and the actions of a gradient scaler are optimizer, and so is setting gradients to
  zero, after which the phase around it goes on. What follows them is other.
* An optimizer may call a closure that runs forward and backward within `Optimizer.step`, once (Lightning does so) or
  often (L-BFGS). Then the backward pass in it is backward, and the forward before that pass is forward.
* Data loading, checkpoints, evaluation and logging are phases of their own, after which the phase around them goes on
  (`events/pauses/`).

So what runs after the backward without a graph, such as copies of reduced gradients, still counts as backward.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tracekit.analysis.events.innermost_span import outermost_first
from tracekit.analysis.events.pauses.pause_times import PauseTimes, pause_times
from tracekit.analysis.events.phase_evidence import PhaseEvidence, data_loading, phase_evidence
from tracekit.model.events import ABSENT, Bool, EventTable, Int64

__all__ = ["PHASES", "STEP_PHASES", "PhaseTimeline", "phase_timeline"]

PHASES = ("forward", "backward", "optimizer", "evaluation", "checkpoint")
"""The phases of a launch."""
STEP_PHASES = ("data", *PHASES, "logging", "other")
"""The phases of a step."""
_FORWARD, _BACKWARD, _OPTIMIZER, _AFTER = range(4)  # what follows the optimizer is `_AFTER`
_OF_LAUNCH = np.array([_FORWARD, _BACKWARD, _OPTIMIZER, _OPTIMIZER, -1], dtype=np.int64)  # the last is for -1
_OF_STEP = np.array(
    [STEP_PHASES.index(phase) for phase in ("forward", "backward", "optimizer", "other", "other")], dtype=np.int64
)
_Change = tuple[int, int]  # time, phase


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
    outside = [times[~updates.covers(times)] for times in (step_start_ns, evidence.forward_ns, evidence.backward_ns)]
    change_ns, phase = _joined(
        (updates.end_ns, ends_in),
        *(
            (times, np.full(len(times), code))
            for times, code in zip(outside, (_FORWARD, _FORWARD, _BACKWARD), strict=True)
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
    rows = np.flatnonzero(events.in_category("cpu_op", "Operator") & events.on_tracks(tracks))
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
