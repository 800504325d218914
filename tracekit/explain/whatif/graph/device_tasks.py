"""Which tasks the operations of a GPU rank belong to: what is compared with the work of other ranks and steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tracekit.explain.pipeline.tables import ACTIONS
from tracekit.explain.whatif.graph.operations import (
    Interner,
    Interners,
    Operations,
    numbers_of_transfers,
    roles_of_transfers,
    signature_of_step,
)
from tracekit.explain.whatif.graph.run_communication import Communication
from tracekit.explain.whatif.tables import CUTS, LaunchIntervals
from tracekit.model.communication import KINDS
from tracekit.model.events import ABSENT, Bool, Float64, Int64
from tracekit.model.spans import ACTION_KINDS, ACTION_NAMES
from tracekit.model.summary import RankSummary
from tracekit.replay.operation_graph import LIMIT, NO_TRAINING, ROLES, SYNCHRONISATION, WORK

_WAIT, _STEP, _END = (CUTS.index(what) for what in ("wait", "step", "end"))


class DeviceTasks:
    """The tasks of one rank, as numbers of the columns of `Operations`."""

    def __init__(
        self,
        summary: RankSummary,
        timeline: DeviceTimeline,
        communication: Communication,
        operations: Operations,
        interners: Interners,
        *,
        has_replicas: bool,
    ) -> None:
        self.operations, self.interners = operations, interners
        self.timeline, self.communication = timeline, communication
        layout = None if summary.pipeline is None else summary.pipeline.layout
        self.stage = layout.stage_ids[0] if layout is not None and len(layout.stage_ids) == 1 else -1
        self.rank, self.has_replicas = summary.rank, has_replicas
        self.signature = self._signatures()
        self.actions = summary[ACTIONS]
        self.action = self._actions()
        positions = timeline.step * (int(timeline.slot.max()) + 1) + timeline.slot
        by_action = np.full(len(positions), ABSENT, dtype=np.int64)
        if not has_replicas and len(self.actions):
            by_action = self.action
            positions = np.where(by_action != ABSENT, int(positions.max()) + 1 + by_action, positions)
        _, first, position = np.unique(positions, return_index=True, return_inverse=True)
        self.position = position.reshape(-1)
        of_position = by_action[first]
        letter = np.append(self.actions.kind, ABSENT)[of_position].astype(np.int64)
        self.label = np.where(of_position == ABSENT, self.signature[timeline.step[first]], -2 - letter)
        self.slot = np.where(of_position == ABSENT, timeline.slot[first], 0)
        everywhere = np.arange(len(first))
        self.host = self._at_positions("host", positions=everywhere)
        classes = self._numbers(interners.comparison_classes, ("device", self.stage), everywhere)
        self.device = operations.add_tasks(self._numbers(interners.kinds, ("device",), everywhere), classes)

    def _actions(self) -> Int64:
        """Return the action of a pipeline that each row is part of, or -1: int64 [n].

        A row is part of the action in which its kernels run. A row without kernels continues what is before it.
        """
        timeline, actions = self.timeline, self.actions
        result = np.full(len(timeline.what), ABSENT, dtype=np.int64)
        if not len(actions):
            return result
        starts_ns, ends_ns = actions.start_ns, actions.end_ns
        rows = np.flatnonzero(timeline.intervals.device_ns != ABSENT)
        middle_ns = timeline.end_ns[rows] - timeline.intervals.device_ns[rows] // 2
        action = np.searchsorted(starts_ns, middle_ns, side="right") - 1
        inside = (action >= 0) & (middle_ns < ends_ns[action]) & (actions.stage[action] != ABSENT)
        result[rows[inside]] = action[inside]
        # A row that cuts the host's time, and has no kernels, belongs to the kernels behind the wait that follows it.
        bare = np.setdiff1d(timeline.host_row[rows], rows)
        result[bare] = result[np.minimum(bare + 1, len(result) - 1)]
        known = np.zeros(len(result), dtype=np.bool_)
        known[rows] = known[bare] = known[timeline.what == _STEP] = True
        return result[np.maximum.accumulate(np.where(known, np.arange(len(result)), 0))]

    def _numbers(self, interner: Interner, what: tuple[object, ...], positions: Int64) -> Int64:
        """Return the numbers of tasks at some positions, int64 [k].

        They are compared with an action of the same kind, or with the same position in a step.
        """
        label, slot = self.label[positions], self.slot[positions]
        result = np.empty(len(positions), dtype=np.int64)
        for number in np.unique(label).tolist():
            here = label == number
            name = (number,) if number >= 0 else ("action", ACTION_KINDS[-2 - number])
            result[here] = interner.behind((*what, *name), slot[here])
        return result

    def _at_positions(
        self,
        *what: object,
        positions: Int64,
        role: int = WORK,
        host: Int64 | int = ABSENT,
        device: Int64 | int = ABSENT,
        host_share: Float64 | float = 0.0,
    ) -> Int64:
        """Add a task for each of some positions, int64 [k], and return their numbers."""
        return self.operations.add_tasks(
            self._numbers(self.interners.kinds, what, positions),
            self._numbers(self.interners.comparison_classes, what, positions),
            role=role,
            host_task=host,
            device_task=device,
            host_share=host_share,
        )

    def _signatures(self) -> Int64:
        timeline, communication = self.timeline, self.communication
        step = timeline.step[timeline.row_of]
        kind, size_bytes = communication.kind[timeline.rows], communication.comparable_size_bytes[timeline.rows]
        result = []
        for number in range(int(timeline.step[-1]) + 1):
            here = step == number
            result.append(signature_of_step(self.interners.comparison_classes, kind[here], size_bytes[here]))
        return np.array(result, dtype=np.int64)

    def add(self, labels: Sequence[tuple[object, ...]]) -> Int64:
        """Add a task for each label, and return their numbers."""
        interners = self.interners
        return self.operations.add_tasks(interners.kinds.numbers(labels), interners.comparison_classes.numbers(labels))

    def of_host(self, rows: Int64, interruption: Int64) -> Int64:
        """Return the tasks of the host's work in some rows, int64 [k]; those in which it does not train apart.

        interruption: index into `NO_TRAINING`, or -1, int64 [k].
        """
        task = self.host[self.position[rows]]
        for what in np.unique(interruption[interruption != ABSENT]).tolist():
            name, here = NO_TRAINING[what], interruption == what
            positions, number = np.unique(self.position[rows[here]], return_inverse=True)
            of_name = self._at_positions(name, positions=positions, role=ROLES.index(name), host=self.host[positions])
            task[here] = of_name[number.reshape(-1)]
        return task

    def of_device(self, rows: Int64) -> tuple[Int64, Int64, Int64]:
        """Return task, type and stage of the kernels of some rows, int64 [k] each."""
        task, types = self.device[self.position[rows]], self.interners.types
        kinds, stages = np.full(len(rows), types["compute"]), np.full(len(rows), self.stage)
        if not len(self.actions):
            return task, kinds, stages
        action = self.action[rows]
        inside = action != ABSENT
        used, number = np.unique(action[inside], return_inverse=True)
        letters = [ACTION_KINDS[kind] for kind in self.actions.kind[used].tolist()]
        of_action = self.actions.stage[used].tolist()
        kind_of = self.interners.kinds.numbers(("action", letter) for letter in letters)
        classes = [("action", letter, stage) for letter, stage in zip(letters, of_action, strict=True)]
        class_of = self.interners.comparison_classes.numbers(classes)
        task[inside] = self.operations.add_tasks(kind_of, class_of)[number]
        kinds[inside] = types.numbers(ACTION_NAMES[letter] for letter in letters)[number]
        stages[inside] = np.array(of_action, dtype=np.int64)[number]
        return task, kinds, stages

    def of_synchronisations(self, rows: Int64) -> Int64:
        """Return a task for each synchronisation: what it adds is the wait for the device."""
        number, positions = _number_in_group(self.position[rows]), self.position[rows]
        task = np.empty(len(rows), dtype=np.int64)
        for k in np.unique(number).tolist():
            here = number == k
            hosts = self.host[positions[here]]
            task[here] = self._at_positions(
                "synchronise", k, positions=positions[here], role=SYNCHRONISATION, host=hosts
            )
        return task

    def of_limits(self, rows: Int64, device_task: Int64) -> Int64:
        """Return a task for the limit that launches set in each host interval; rows: the last row of each.

        Limits are compared where the host's time is cut alike. device_task: of the last kernels of each, int64 [k].
        """
        timeline = self.timeline
        intervals, host = timeline.host_row[rows], timeline.host[:-1]
        number = _number_in_group(self.position[host])
        cuts = self._cuts_at_positions(host)[self.position[intervals]]
        of_interval = number[np.searchsorted(host, intervals)]
        host_ns, device_ns = timeline.intervals.limit_host_ns[rows], timeline.intervals.limit_device_ns[rows]
        share = host_ns / np.maximum(host_ns + device_ns, 1)
        host_task = self.host[self.position[intervals]]
        task = np.empty(len(rows), dtype=np.int64)
        variants = cuts * (int(of_interval.max(initial=0)) + 1) + of_interval
        for variant in np.unique(variants).tolist():
            here = variants == variant
            task[here] = self._at_positions(
                "limit",
                int(cuts[here][0]),
                int(of_interval[here][0]),
                positions=self.position[intervals[here]],
                role=LIMIT,
                host=host_task[here],
                device=device_task[here],
                host_share=share[here],
            )
        return task

    def _cuts_at_positions(self, host: Int64) -> Int64:
        """Return a number for how the host's time is cut at each position, int64 [p]. host: rows that cut it."""
        what, by_position = self.timeline.what, host[np.argsort(self.position[host], kind="stable")]
        bounds = np.searchsorted(self.position[by_position], np.arange(len(self.label) + 1))
        counts, first = np.diff(bounds), what[np.append(by_position, 0)[bounds[:-1]]]
        result = np.full(len(counts), ABSENT, dtype=np.int64)
        interner, cuts = self.interners.comparison_classes, what[by_position]
        for alone in np.unique(first[counts == 1]).tolist():
            result[(counts == 1) & (first == alone)] = interner["cuts", np.array([alone], dtype=what.dtype).tobytes()]
        for position in np.flatnonzero(counts != 1).tolist():
            result[position] = interner["cuts", cuts[bounds[position] : bounds[position + 1]].tobytes()]
        return result

    def of_communication(self) -> tuple[Int64, Int64]:
        """Return a task and a type for all communication of the range of steps, int64 [c] each."""
        launched, position = self.communication.rows(self.timeline.rows), self.position[self.timeline.row_of]
        label, slot = self.label[position], self.slot[position]
        task = self.operations.add_tasks(
            *numbers_of_transfers(self.interners, launched, label, slot), role=roles_of_transfers(launched)
        )
        used, number = np.unique(launched.kind, return_inverse=True)
        return task, self.interners.types.numbers(KINDS[kind] for kind in used.tolist())[number.reshape(-1)]


def _number_in_group(group: Int64) -> Int64:
    """Return how many earlier rows are of the same group, int64 [k]."""
    order = np.argsort(group, kind="stable")
    ordered = group[order]
    opens = np.flatnonzero(np.diff(ordered, prepend=-1))
    counts = np.diff(np.append(opens, len(group)))
    result = np.empty(len(group), dtype=np.int64)
    result[order] = np.arange(len(group)) - np.repeat(opens, counts)
    return result


def intervals_of_steps(intervals: LaunchIntervals, steps: Sequence[int]) -> LaunchIntervals | None:
    """Return the intervals from the begin of the first step to the row that ends the last; None if they are not known.

    steps: numbers of steps that follow one another.
    """
    begins = np.flatnonzero((intervals.what == _STEP) & (intervals.step == steps[0]))
    last = np.flatnonzero((intervals.what == _STEP) & (intervals.step == steps[-1]))
    if not len(begins) or not len(last):
        return None
    ends = np.flatnonzero(np.isin(intervals.what, (_STEP, _END)))
    after = ends[ends > last[0]]
    if not len(after):
        return None
    found = intervals.rows(np.arange(begins[0], after[0] + 1))
    return found if np.count_nonzero(found.what[:-1] == _STEP) == len(steps) else None


class DeviceTimeline:
    """The n rows of the intervals of a range of steps, on the rank's wall clock. The last row only ends the one before.

    Attributes:
        host: rows that cut the host's time, int64 [h].
        host_row: of each row the row that begins its host interval, int64 [n].
        end_ns: when the kernels that were launched until the end of each row had ended, int64 [n].
        free_ns: when the kernels that were launched before each row had ended, int64 [n].
        step: int64 [n], from 0.
        rows: of the communication that was launched in these steps, in order of launch, int64 [c].
        row_of: the row that launches each of them, int64 [c].
        slot: how much communication of the step was launched up to each row, int64 [n].
    """

    def __init__(self, begin_ns: int, intervals: LaunchIntervals, communication: Communication) -> None:
        """begin_ns: when the device began the first step."""
        count = len(intervals)
        self.what, self.intervals = intervals.what, intervals
        self.begin_ns, self.until_ns = intervals.begin_ns, intervals.until_ns
        self.host = np.flatnonzero(self.what != _WAIT)
        self.host_row = np.maximum.accumulate(np.where(self.what != _WAIT, np.arange(count), 0))
        self.end_ns = np.maximum(intervals.device_end_ns, begin_ns)
        self.free_ns = np.concatenate(([begin_ns], self.end_ns[:-1]))
        self.step = np.cumsum(self.what == _STEP) - 1
        self.step[-1] = self.step[-2]
        launch_ns, end_ns = communication.own_launch_ns, communication.own_end_ns
        rows = np.flatnonzero((launch_ns >= self.begin_ns[0]) & (launch_ns < self.begin_ns[-1]))
        row_of = self.host[np.searchsorted(self.begin_ns[self.host], launch_ns[rows], side="right") - 1]
        launches = np.flatnonzero(intervals.communication_end_ns != ABSENT)
        launches = launches[np.argsort(intervals.communication_end_ns[launches], kind="stable")]
        ends_ns = intervals.communication_end_ns[launches]
        index = np.searchsorted(ends_ns, end_ns[rows])
        known = np.append(ends_ns, ABSENT)[index] == end_ns[rows]
        row_of = np.where(known, np.append(launches, ABSENT)[index], row_of)
        order = np.lexsort((communication.ready_ns[rows], row_of))
        self.rows, self.row_of = rows[order], row_of[order]
        launched = np.cumsum(np.bincount(self.row_of, minlength=count))
        begins = np.flatnonzero(self.what[:-1] == _STEP)
        self.slot = launched - np.concatenate(([0], launched))[begins][self.step]

    def before(self, present: Bool) -> Int64:
        """Return the latest row before each row at which a mask [n] holds, or -1: int64 [n]."""
        latest = np.maximum.accumulate(np.where(present, np.arange(len(present)), ABSENT))
        return np.concatenate(([ABSENT], latest[:-1]))
