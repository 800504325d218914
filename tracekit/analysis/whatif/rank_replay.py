"""What one rank does in a stretch of steps, as operations to replay.

The rank's time is cut where it issues communication, where it waits for some, where an action of a pipeline begins or
ends, and where a step ends. A task is an action with all its parts, or the work between two collectives or messages of
a step. Actions of one kind are compared with each other. Other work is compared with work at the same place of steps
with the same communication.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tracekit.analysis.pipeline.parts import ACTIONS
from tracekit.analysis.timeline.parts import WAITS
from tracekit.analysis.whatif.run_communication import Communication
from tracekit.model.communication import KINDS
from tracekit.model.events import Int64
from tracekit.model.run import ClockModel
from tracekit.model.spans import ACTION_KINDS
from tracekit.model.summary import RankSummary

_ACTION_NAMES = {"F": "forward", "B": "backward", "I": "input gradient", "W": "weight gradient"}
_UNNAMED_WORK = "own work"  # between collectives, where it is not known to be an action of a pipeline
# What happens on a rank. At one time it happens in this order.
_ACTION_END, _ARRIVAL, _WAIT, _ACTION_BEGIN, _STEP_END = range(5)

__all__ = ["Interners", "Operations", "RankReplayBuilder"]


@dataclass(kw_only=True)
class _Interner:
    """Numbers for names, in order of first use."""

    of: dict[object, int] = field(default_factory=dict)

    def __getitem__(self, name: object) -> int:
        return self.of.setdefault(name, len(self.of))


@dataclass(kw_only=True)
class Operations:
    """The operations of all ranks in a stretch of steps, built one by one.

    The columns are those of `GraphSteps` and of `build_graph`. tasks: the numbers of the tasks so far.
    """

    begin_ns: int
    duration_ns: list[int] = field(default_factory=list)
    task: list[int] = field(default_factory=list)
    type: list[int] = field(default_factory=list)
    rank: list[int] = field(default_factory=list)
    stage: list[int] = field(default_factory=list)
    group: list[int] = field(default_factory=list)
    before: list[int] = field(default_factory=list)
    after: list[int] = field(default_factory=list)
    tasks: _Interner = field(default_factory=_Interner)
    kind: list[int] = field(default_factory=list)
    comparison_class: list[int] = field(default_factory=list)

    def add(self, task: _Task, rank: int, duration_ns: int, waits_for: Sequence[int], *, group: int = -1) -> int:
        """Add an operation of a task that waits for others, and return its place."""
        place, number = len(self.duration_ns), self.tasks[task.name]
        if number == len(self.kind):
            self.kind.append(task.kind)
            self.comparison_class.append(task.comparison_class)
        self.duration_ns.append(duration_ns)
        self.task.append(number)
        self.type.append(task.type)
        self.rank.append(rank)
        self.stage.append(task.stage)
        self.group.append(group)
        self.before += waits_for
        self.after += [place] * len(waits_for)
        return place


@dataclass(frozen=True, kw_only=True)
class _Task:
    """The task that an operation belongs to; `name` identifies it, the rest is as in `GraphSteps`."""

    name: object
    kind: int
    comparison_class: int
    type: int
    stage: int


@dataclass(frozen=True, kw_only=True)
class Interners:
    """Numbers of kinds, comparison classes and types, the same in all stretches."""

    kinds: _Interner = field(default_factory=_Interner)
    comparison_classes: _Interner = field(default_factory=_Interner)
    types: _Interner = field(default_factory=_Interner)


class RankReplayBuilder:
    """Adds the operations of one rank, in order of time; times are on the run's clock.

    Attributes:
        bounds: int64 [s + 1], the begin of the first step and the end of each.
        actions: the pipeline actions of the rank in these steps.
        waits_ns: int64 [2, w], when the rank waits, from and until.
        arrivals: rows of the communication that the rank issues in these steps.
        cuts: time, what happens and to which row: where the rank's time is cut.
        position: the time up to which there are operations.
        signatures: of each step a number for what the rank communicates in it.
        step, slot: the step, and the number of collectives and messages issued in it so far.
        action: the row of the action that runs, or -1.
        last: the place of the rank's last operation.
        place_of_row: the operation of each row of the communication issued so far.
        pending: when each row that was issued and not waited for ends.
        awaited: operations of communication that the rank's next operation waits for.
    """

    def __init__(
        self,
        summary: RankSummary,
        clock: ClockModel,
        bounds: Int64,
        communication: Communication,
        operations: Operations,
        interners: Interners,
        replicas: int,
    ) -> None:
        self.summary, self.operations, self.interners, self.bounds = summary, operations, interners, bounds
        self.communication, self.has_replicas = communication, replicas > 1
        actions = summary[ACTIONS]
        rows = np.flatnonzero((clock.to_run(actions.start_ns) >= bounds[0]) & (actions.stage >= 0))
        rows = rows[clock.to_run(actions.end_ns[rows]) <= bounds[-1]]
        self.actions = actions.rows(rows)
        self.waits_ns = np.stack([clock.to_run(t) for t in (summary[WAITS].since_ns, summary[WAITS].until_ns)])
        self.arrivals = np.flatnonzero((communication.ready_ns >= bounds[0]) & (communication.ready_ns < bounds[-1]))
        self.cuts = self._cuts(clock)
        self.position = int(bounds[0])
        layout = None if summary.pipeline is None else summary.pipeline.layout
        self.stage = layout.stage_ids[0] if layout is not None and len(layout.stage_ids) == 1 else -1
        self.signatures = self._signatures()
        self.step, self.slot, self.action, self.last = 0, 0, -1, -1
        self.place_of_row: dict[int, int] = {}
        self.pending: dict[int, int] = {}
        self.awaited: list[int] = []

    def _cuts(self, clock: ClockModel) -> list[tuple[int, int, int]]:
        """Return where the rank's time is cut: the time, what happens and to which row.

        A wait is cut where it begins. During a wait the rank does nothing: what is issued or begins in it moves to its
        begin or end.
        """
        first, last = int(self.bounds[0]), int(self.bounds[-1])
        since_ns, until_ns = self.waits_ns
        within = np.flatnonzero((until_ns > first) & (since_ns < last))
        since_ns, until_ns = since_ns[within], until_ns[within]
        self.waits_ns = np.stack((np.maximum(since_ns, first), until_ns))
        happenings = (
            (_ARRIVAL, self.communication.ready_ns[self.arrivals], False),
            (_ACTION_BEGIN, clock.to_run(self.actions.start_ns), True),
            (_ACTION_END, clock.to_run(self.actions.end_ns), True),
            (_STEP_END, self.bounds[1:], True),
        )
        cuts = [(int(t), _WAIT, i) for i, t in enumerate(self.waits_ns[0].tolist())]
        for what, time_ns, to_the_end in happenings:
            inside = np.searchsorted(since_ns, time_ns, side="left") - 1
            waiting = (inside >= 0) & (time_ns < until_ns[np.maximum(inside, 0)]) if len(within) else inside >= 0
            edge_ns = (until_ns if to_the_end else since_ns)[np.maximum(inside, 0)] if len(within) else time_ns
            moved_ns = np.where(waiting, edge_ns, time_ns)
            cuts += [(int(t), what, i) for i, t in enumerate(moved_ns.tolist())]
        return sorted(cuts)

    def _signatures(self) -> list[int]:
        """Return a number for what the rank communicates in each step: equal for the same kinds and sizes in order."""
        kind, size_bytes = self.communication.kind, self.communication.size_bytes
        ready_ns = self.communication.ready_ns[self.arrivals]
        result = []
        for first, stop in zip(self.bounds[:-1].tolist(), self.bounds[1:].tolist(), strict=True):
            rows = self.arrivals[(ready_ns >= first) & (ready_ns < stop)]
            label = ("signature", kind[rows].tobytes(), size_bytes[rows].tobytes())
            result.append(self.interners.comparison_classes[label])
        return result

    def add_operations(self) -> list[int]:
        """Add this rank's operations; return the places of those that end its steps."""
        begin = _Task(
            name=("begin", self.summary.rank),
            kind=self.interners.kinds["begin", self.summary.rank],  # alone of its kind: ideally as measured
            comparison_class=self.interners.comparison_classes["begin", self.summary.rank],
            type=self.interners.types[_UNNAMED_WORK],
            stage=self.stage,
        )
        delay_ns = self.position - self.operations.begin_ns
        self.last = self.operations.add(begin, self.summary.rank, delay_ns, [])
        ends: list[int] = []
        for cut_ns, what, which in self.cuts:
            time_ns = min(cut_ns, int(self.bounds[-1]))
            self._work_until(time_ns)
            if what == _ACTION_BEGIN:
                self.action = which
            elif what == _ACTION_END:
                self.action = -1
            elif what == _ARRIVAL:
                self._issue_communication(int(self.arrivals[which]))
            elif what == _WAIT:
                over = self._finished_by(int(self.waits_ns[1, which]))
                self.position = max([self.position, *(self.pending[row] for row in over)])
                self._end_wait_for(over)
            else:
                self._end_wait_for(self._finished_by(time_ns))
                self._work_until(time_ns)
                ends.append(self.last)
                self.step, self.slot = self.step + 1, 0
        return ends

    def _work_until(self, time_ns: int) -> None:
        """Add an operation for the rank's work until then, after the communication that it has waited for."""
        if time_ns > self.position or self.awaited:
            duration_ns = max(time_ns - self.position, 0)
            waits_for = [self.last, *self.awaited]
            self.last = self.operations.add(self._current_task(), self.summary.rank, duration_ns, waits_for)
            self.awaited = []
            self.position = max(time_ns, self.position)

    def _issue_communication(self, row: int) -> None:
        group = int(self.communication.group[row])
        self.place_of_row[row] = self.operations.add(
            self._transfer_task(row), self.summary.rank, 0, [self.last], group=group
        )
        self.pending[row] = int(self.communication.end_ns[row])
        self.slot += 1

    def _finished_by(self, time_ns: int) -> list[int]:
        """Return rows of communication that was issued, not waited for yet, and over by then."""
        return [row for row, end_ns in self.pending.items() if end_ns <= time_ns]

    def _end_wait_for(self, rows: list[int]) -> None:
        self.awaited += [self.place_of_row[row] for row in rows]
        for row in rows:
            del self.pending[row]

    def _current_task(self) -> _Task:
        """Return the task that the rank is working on."""
        interners, rank = self.interners, self.summary.rank
        if self.action >= 0:
            letter = ACTION_KINDS[int(self.actions.kind[self.action])]
            stage = int(self.actions.stage[self.action])
            return _Task(
                name=("action", rank, self.action),
                kind=interners.kinds["action", letter],
                comparison_class=interners.comparison_classes["action", letter, stage if self.has_replicas else None],
                type=interners.types[_ACTION_NAMES[letter]],
                stage=stage,
            )
        step = min(self.step, len(self.signatures) - 1)
        place = ("between", self.signatures[step], self.slot)
        return _Task(
            name=("between", rank, self.step, self.slot),
            kind=interners.kinds[place],
            comparison_class=interners.comparison_classes[place],
            type=interners.types[_UNNAMED_WORK],
            stage=self.stage,
        )

    def _transfer_task(self, row: int) -> _Task:
        communication = self.communication
        kind = KINDS[int(communication.kind[row])]
        label = ("transfer", kind, int(communication.size_bytes[row]), int(communication.members[row]))
        return _Task(
            name=("transfer", self.summary.rank, row),
            kind=self.interners.kinds[label],
            comparison_class=self.interners.comparison_classes[label],
            type=self.interners.types[kind],
            stage=self.stage,
        )
