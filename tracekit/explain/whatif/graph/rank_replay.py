"""What one CPU rank does in a range of steps, as operations to replay.

The rank's time is cut where it issues communication, where it waits for some, where an action of a pipeline begins or
ends, and where a step ends. A task is an action with all its parts, or the work between two collectives or messages of
a step. Actions of one kind are compared with each other. Other work is compared with work at the same position in steps
with the same communication.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracekit.explain.pipeline.tables import ACTIONS
from tracekit.explain.whatif.graph.operations import (
    Interners,
    Operations,
    ProgramOrder,
    RankReplay,
    numbers_at_positions,
    numbers_of_transfers,
    roles_of_transfers,
    signature_of_step,
)
from tracekit.explain.whatif.graph.run_communication import Communication
from tracekit.explain.whatif.tables import INTERRUPTIONS
from tracekit.model.communication import KINDS
from tracekit.model.events import ABSENT, Bool, Int64
from tracekit.model.run import ClockModel
from tracekit.model.spans import ACTION_KINDS, ACTION_NAMES
from tracekit.model.summary import RankSummary
from tracekit.rank.recorded_steps import WAITS
from tracekit.replay.operation_graph import NO_TRAINING, NO_TRAINING_TYPES, ROLES, WORK

_UNNAMED_WORK = "own work"  # between collectives, where it is not known to be an action of a pipeline
# What happens on a rank. At one time it happens in this order.
_RESUME, _ACTION_END, _ARRIVAL, _WAIT, _ACTION_BEGIN, _STEP_END, _INTERRUPTION = range(7)
# Of communication that a rank issues in each of `NO_TRAINING`, and, the last, in none.
_ROLE_OF_TRANSFER = np.array([WORK if name == "data" else ROLES.index(name) for name in NO_TRAINING] + [WORK])


@dataclass(frozen=True, kw_only=True, eq=False)
class _Cuts:
    """Where a rank's time is cut, in order.

    Attributes:
        time_ns: int64 [n].
        what: what happens, int64 [n].
        which: to which row, int64 [n].
    """

    time_ns: Int64
    what: Int64
    which: Int64

    def before(self, counted: Bool) -> Int64:
        """Return how often a mask [n] holds before each cut, int64 [n]."""
        return np.cumsum(counted) - counted

    def latest(self, begins: int, ends: int) -> Int64:
        """Return the row that something had begun with, and not ended, before each cut, or -1: int64 [n]."""
        changes = (self.what == begins) | (self.what == ends)
        state = np.where(self.what == begins, self.which, ABSENT)
        last = np.maximum.accumulate(np.where(changes, np.arange(len(changes)), ABSENT))
        last = np.concatenate(([ABSENT], last[:-1]))
        return np.where(last == ABSENT, ABSENT, state[last])


def add_rank(
    summary: RankSummary,
    clock: ClockModel,
    bounds: Int64,
    communication: Communication,
    operations: Operations,
    interners: Interners,
) -> RankReplay:
    """Add the operations of one CPU rank; times are on the run's clock.

    bounds: int64 [s + 1], the begin of the first step and the end of each.
    """
    return _Builder(summary, clock, bounds, communication, operations, interners).add()


class _Builder:
    """Adds the operations of a rank.

    Attributes:
        bounds: int64 [s + 1], the begin of the first step and the end of each.
        actions: the pipeline actions of the rank in these steps.
        interruptions: when the rank does not train in these steps.
        waits_ns: int64 [2, w], when the rank waits, from and until.
        issued: rows of the communication that the rank issues in these steps, int64 [c].
        cuts: where the rank's time is cut.
        step, slot: the step, and the number of collectives and messages issued in it, before each cut, int64 [n].
        action: the row of the action that runs before each cut, or -1, int64 [n].
        interruption: index into `NO_TRAINING` of what the rank does before each cut, or -1, int64 [n].
        signature: what the rank communicates in each step, int64 [s].
    """

    def __init__(
        self,
        summary: RankSummary,
        clock: ClockModel,
        bounds: Int64,
        communication: Communication,
        operations: Operations,
        interners: Interners,
    ) -> None:
        self.rank, self.operations, self.interners, self.bounds = summary.rank, operations, interners, bounds
        self.communication = communication
        actions = summary[ACTIONS]
        rows = np.flatnonzero((clock.to_run(actions.start_ns) >= bounds[0]) & (actions.stage >= 0))
        rows = rows[clock.to_run(actions.end_ns[rows]) <= bounds[-1]]
        self.actions = actions.rows(rows)
        self.waits_ns = np.stack([clock.to_run(t) for t in (summary[WAITS].since_ns, summary[WAITS].until_ns)])
        self.issued = np.flatnonzero((communication.ready_ns >= bounds[0]) & (communication.ready_ns < bounds[-1]))
        self.cuts = cuts = self._cuts(summary, clock)
        layout = None if summary.pipeline is None else summary.pipeline.layout
        self.stage = layout.stage_ids[0] if layout is not None and len(layout.stage_ids) == 1 else ABSENT
        self.step = cuts.before(cuts.what == _STEP_END)
        arrived = cuts.before(cuts.what == _ARRIVAL)
        step_begins = np.concatenate(([0], np.flatnonzero(cuts.what == _STEP_END)))
        self.slot = arrived - arrived[step_begins][self.step]
        self.step = np.minimum(self.step, len(bounds) - 2)
        self.action = cuts.latest(_ACTION_BEGIN, _ACTION_END)
        self.interruption = np.append(self.interruptions.what, ABSENT)[cuts.latest(_INTERRUPTION, _RESUME)]
        self.signature = self._signatures()

    def _cuts(self, summary: RankSummary, clock: ClockModel) -> _Cuts:
        """Return where the rank's time is cut.

        A wait is cut where it begins. During a wait the rank does nothing: what is issued or begins in it moves to its
        begin or end.
        """
        first, last = int(self.bounds[0]), int(self.bounds[-1])
        interruptions = summary[INTERRUPTIONS]
        in_steps = (clock.to_run(interruptions.end_ns) > first) & (clock.to_run(interruptions.begin_ns) < last)
        self.interruptions = interruptions = interruptions.rows(in_steps)
        since_ns, until_ns = self.waits_ns
        within = np.flatnonzero((until_ns > first) & (since_ns < last))
        since_ns, until_ns = since_ns[within], until_ns[within]
        self.waits_ns = np.stack((np.maximum(since_ns, first), until_ns))
        happenings = (
            (_ARRIVAL, self.communication.ready_ns[self.issued], False),
            (_ACTION_BEGIN, clock.to_run(self.actions.start_ns), True),
            (_ACTION_END, clock.to_run(self.actions.end_ns), True),
            (_STEP_END, self.bounds[1:], True),
            (_INTERRUPTION, clock.to_run(interruptions.begin_ns), True),
            (_RESUME, clock.to_run(interruptions.end_ns), True),
        )
        times_ns, whats = [self.waits_ns[0]], [_WAIT]
        for what, time_ns, to_the_end in happenings:
            inside = np.searchsorted(since_ns, time_ns, side="left") - 1
            waiting = (inside >= 0) & (time_ns < until_ns[np.maximum(inside, 0)]) if len(within) else inside >= 0
            edge_ns = (until_ns if to_the_end else since_ns)[np.maximum(inside, 0)] if len(within) else time_ns
            times_ns.append(np.where(waiting, edge_ns, time_ns))
            whats.append(what)
        kind = np.repeat(np.array(whats), [len(of_what) for of_what in times_ns])
        which, all_ns = np.concatenate([np.arange(len(of_what)) for of_what in times_ns]), np.concatenate(times_ns)
        order = np.lexsort((which, kind, all_ns))
        return _Cuts(time_ns=np.minimum(all_ns, last)[order], what=kind[order], which=which[order])

    def _signatures(self) -> Int64:
        kind, size_bytes = self.communication.kind, self.communication.comparable_size_bytes
        ready_ns = self.communication.ready_ns[self.issued]
        result = []
        for first, stop in zip(self.bounds[:-1].tolist(), self.bounds[1:].tolist(), strict=True):
            rows = self.issued[(ready_ns >= first) & (ready_ns < stop)]
            result.append(signature_of_step(self.interners.comparison_classes, kind[rows], size_bytes[rows]))
        return np.array(result, dtype=np.int64)

    def add(self) -> RankReplay:
        """Add this rank's operations."""
        cuts, operations = self.cuts, self.operations
        arrivals = np.flatnonzero(cuts.what == _ARRIVAL)
        rows = self.issued[cuts.which[arrivals]]
        released = self._released(arrivals, self.communication.end_ns[rows])
        freed = np.bincount(released, minlength=len(cuts.what) + 1)[:-1] > 0
        over_ns = np.full(len(cuts.what) + 1, self.bounds[0])
        np.maximum.at(over_ns, released, self.communication.end_ns[rows])
        waits = cuts.what == _WAIT
        busy_ns = np.maximum.accumulate(np.maximum(cuts.time_ns, np.where(waits, over_ns[:-1], self.bounds[0])))
        busy_ns = np.concatenate((self.bounds[:1], busy_ns[:-1]))  # until when there are operations, before each cut
        awaited = np.concatenate(([False], (waits & freed)[:-1]))
        works = np.flatnonzero((cuts.time_ns > busy_ns) | awaited)
        # A step ends with an operation that waits for what was over by then.
        closing = np.flatnonzero((cuts.what == _STEP_END) & freed)
        keys = np.concatenate((2 * works, 2 * closing + 1))
        duration_ns = np.concatenate((np.maximum(cuts.time_ns - busy_ns, 0)[works], np.zeros_like(closing)))
        order = np.argsort(keys, kind="stable")
        keys, duration_ns = keys[order], duration_ns[order]
        begin = self._add_begin()
        operation = np.concatenate((begin, self._add_work(keys // 2, duration_ns, rows, arrivals)))
        operations.wait(operation[:-1], operation[1:])
        transfers = self._add_transfers(rows, arrivals)
        behind = np.append(operation, ABSENT)[np.searchsorted(keys, 2 * released, side="right") + 1]
        ends = operation[np.searchsorted(keys, 2 * np.flatnonzero(cuts.what == _STEP_END) + 1, side="right")]
        issuing = operation[np.searchsorted(keys, 2 * arrivals, side="right")]
        program = ProgramOrder(operations, self.interners, self.rank, self.communication.purpose[rows])
        program.launched_after(issuing, transfers)
        program.known_since(np.append(begin, ends)[self.step[arrivals]], transfers)
        program.await_all(transfers, behind, behind, self.step[arrivals])
        arrived_ns = self.communication.ready_ns[rows]
        return RankReplay(ends=ends, rows=rows, operations=transfers, arrived_ns=arrived_ns)

    def _released(self, arrivals: Int64, end_ns: Int64) -> Int64:
        """Return the cut at which the rank has waited for each communication: the first wait, or end of a step, that is
        not over before it. The number of cuts without any. int64 [c] all.
        """
        cuts = self.cuts
        waits = np.flatnonzero((cuts.what == _WAIT) | (cuts.what == _STEP_END))
        of_wait = np.where(cuts.what[waits] == _WAIT, cuts.which[waits], 0)
        until_ns = self.waits_ns[1][of_wait] if self.waits_ns.size else cuts.time_ns[waits]
        until_ns = np.where(cuts.what[waits] == _WAIT, until_ns, cuts.time_ns[waits])
        over = np.searchsorted(np.maximum.accumulate(until_ns), end_ns, side="left")
        index = np.maximum(over, np.searchsorted(waits, arrivals, side="right"))
        return np.append(waits, len(cuts.what))[index]

    def _add_begin(self) -> Int64:
        """Add the time until the rank begins, which is alone of its kind: ideally as measured."""
        interners, name = self.interners, ("begin", self.rank)
        kind, label = interners.kinds.numbers([name]), interners.comparison_classes.numbers([name])
        task = self.operations.add_tasks(kind, label)
        delay_ns = self.bounds[:1] - self.operations.begin_ns
        return self.operations.add(
            delay_ns, task=task, type=interners.types[_UNNAMED_WORK], rank=self.rank, stage=self.stage
        )

    def _add_work(self, at: Int64, duration_ns: Int64, rows: Int64, arrivals: Int64) -> Int64:
        """Add what the rank does before some cuts, and the exchanges whose work that is. Return the operations.

        at: the cuts, int64 [k]. rows: of the communication that the rank issues, and arrivals: where, int64 [c].
        """
        operations, types = self.operations, self.interners.types
        slots = int(self.slot.max(initial=0)) + 2
        position, action = (self.step * slots + self.slot)[at], self.action[at]
        known = np.flatnonzero(self.communication.received[rows] != ABSENT)
        behind = (self.step * slots + self.slot + 1)[arrivals[known]]
        positions, of_position = np.unique(np.concatenate((position, behind)), return_inverse=True)
        of_position = of_position.reshape(-1)
        tasks = self._tasks_at_positions("between", positions, slots)
        task, kind = tasks[of_position[: len(at)]], np.full(len(at), types[_UNNAMED_WORK])
        stage = np.full(len(at), self.stage)
        interruption = np.where(action == ABSENT, self.interruption[at], ABSENT)
        for what in np.unique(interruption[interruption != ABSENT]).tolist():
            name, here = NO_TRAINING[what], interruption == what
            there, number = np.unique(position[here], return_inverse=True)
            hosts = tasks[np.searchsorted(positions, there)]
            of_name = self._tasks_at_positions(name, there, slots, role=ROLES.index(name), hosts=hosts)
            task[here] = of_name[number.reshape(-1)]
            kind[here] = types[NO_TRAINING_TYPES[what]]
        acts = action != ABSENT
        if acts.any():
            used, number = np.unique(action[acts], return_inverse=True)
            letters = [ACTION_KINDS[letter] for letter in self.actions.kind[used].tolist()]
            stages = self.actions.stage[used].astype(np.int64)
            kinds = self.interners.kinds.numbers(("action", letter) for letter in letters)
            labels = [("action", letter, at) for letter, at in zip(letters, stages.tolist(), strict=True)]
            of_action = operations.add_tasks(kinds, self.interners.comparison_classes.numbers(labels))
            number = number.reshape(-1)
            task[acts], stage[acts] = of_action[number], stages[number]
            kind[acts] = types.numbers(ACTION_NAMES[letter] for letter in letters)[number]
        self._exchanges = (known, tasks[of_position[len(at) :]])
        return operations.add(duration_ns, task=task, type=kind, rank=self.rank, stage=stage)

    def _tasks_at_positions(
        self, what: str, positions: Int64, slots: int, *, role: int = 0, hosts: Int64 | int = ABSENT
    ) -> Int64:
        """Add a task for each position in a step, int64 [p], and return their numbers."""
        signature, slot = self.signature[positions // slots], positions % slots
        return self.operations.add_tasks(
            numbers_at_positions(self.interners.kinds, what, signature, slot),
            numbers_at_positions(self.interners.comparison_classes, what, signature, slot),
            role=role,
            host_task=hosts,
        )

    def _add_transfers(self, rows: Int64, arrivals: Int64) -> Int64:
        """Add the communication that the rank issues, and return the operations, int64 [c]."""
        issued, operations, types = self.communication.rows(rows), self.operations, self.interners.types
        signature, slot = self.signature[self.step[arrivals]], self.slot[arrivals]
        role = _ROLE_OF_TRANSFER[self.interruption[arrivals]]
        role = np.where(role == WORK, roles_of_transfers(issued), role)
        task = operations.add_tasks(*numbers_of_transfers(self.interners, issued, signature, slot), role=role)
        used, number = np.unique(issued.kind, return_inverse=True)
        kind = types.numbers(KINDS[value] for value in used.tolist())[number.reshape(-1)]
        transfers = operations.add(
            np.zeros(len(rows), dtype=np.int64),
            task=task,
            type=kind,
            rank=self.rank,
            stage=self.stage,
            group=issued.group,
            network_link=issued.network_link,
        )
        known, behind = self._exchanges
        operations.exchanges.append(issued.rows(known).exchanges(transfers[known], behind))
        return transfers
