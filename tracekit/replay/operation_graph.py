"""What a job did, as operations that can be replayed: what what-if questions are asked of, wherever it was recorded.

An operation belongs to a task, usually as its only one. An action that a message interrupts is one task of several
operations. Tasks of one kind would last equally long in an ideal job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from tracekit.model.columnar import Columnar
from tracekit.model.events import Bool, Float64, Int32, Int64
from tracekit.replay.replay import DependencyGraph, stable_order

NO_TRAINING = ("data", "checkpoint", "evaluation", "logging", "allocator", "garbage_collection")
"""What a rank does instead of training: names of roles."""
NO_TRAINING_TYPES = ("data loading", "checkpoint", "evaluation", "logging", "allocator", "garbage collection")
"""The types of the operations in which it does."""
ROLES = ("work", "data", "synchronisation", "limit", "regather", "early", *NO_TRAINING[1:])
"""What a task is beside its kind.

work: anything else. data: the rank loads data. synchronisation: the host waits for its device; the task takes no time,
and the wait vanishes if it takes `NEVER_NS`. limit: how long after the begin of a host's interval of time its kernels
can end at the earliest, because they were not launched earlier. regather: an all-gather of parameters that FSDP freed
after the forward pass. early: a reduction of gradients that the last micro-batch repeats. Others of `NO_TRAINING`: what
the rank does instead of training.
"""
WORK, DATA, SYNCHRONISATION, LIMIT, REGATHER, EARLY = range(6)
NEVER_NS = -1e15
"""A duration far below zero: an operation that takes it ends before any other, so that nothing waits for it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Exchanges(Columnar):
    """x exchanges of tokens, or other all-to-alls, of single ranks, whose amounts are known.

    Amounts are bytes, or ns that experts compute where no sizes are known.

    Attributes:
        operation: the transfer, int64 [x].
        task: of the work behind it, int64 [x].
        group: equal on all ranks that exchange with each other, int64 [x].
        sent: int64 [x].
        received: int64 [x].
        estimated: whether the amounts are, bool [x].
    """

    operation: Int64
    task: Int64
    group: Int64
    sent: Int64
    received: Int64
    estimated: Bool


@dataclass(frozen=True, kw_only=True, eq=False)
class GraphSteps:
    """Steps that share a graph of n operations, in w tasks and k replicas.

    A replica is a step of its own, or, if `step_ends` is given, steps that follow one another.

    Attributes:
        graph: which operation waits for which.
        duration_ns: float64 [n, k]; of communication the transfer, without waiting for others.
        task: int64 [n], the task that each operation belongs to.
        kind: int64 [w], what each task is.
        comparison_class: int64 [w], equal for tasks of different ranks that are compared with each other.
        type: int64 [n], index into the types of `OperationGraph`, -1 for none.
        rank: int64 [n], -1 where not known.
        stage: int64 [n], -1 where not known.
        replica: int64 [n], replica of the model, -1 where not known.
        steps: int64 [s], numbers of the steps.
        measured_ns: float64 [s], how long each step was.
        step_ends: int64 [s, r], the operations that end each step where the steps follow one another in one replica;
            None where each replica is a step.
        begin_ns: when the last rank began the first of steps that follow one another. A step lasts from the last
            rank's begin to the last rank's end.
        role: int64 [w], index into `ROLES`; None: all are work.
        host_task: int64 [w], of data, synchronisations and limits the host's task at the same position, or -1.
        device_task: int64 [w], of limits the task of the last kernels, or -1.
        host_share: float64 [w], of limits the share that is the host's time.
        network_link: int64 [n], of transfers an index into `OperationGraph.network_links`, or -1; None where not known.
        exchanges: those of tokens, and other all-to-alls.
    """

    graph: DependencyGraph
    duration_ns: Float64
    task: Int64
    kind: Int64
    comparison_class: Int64
    type: Int64
    rank: Int64
    stage: Int64
    replica: Int64
    steps: Int64
    measured_ns: Float64
    step_ends: Int64 | None = None
    begin_ns: float = 0.0
    role: Int64 | None = None
    host_task: Int64 | None = None
    device_task: Int64 | None = None
    host_share: Float64 | None = None
    network_link: Int64 | None = None
    exchanges: Exchanges = field(default_factory=Exchanges.empty)

    def step_ns(self, duration_ns: Float64) -> Float64:
        """Return how long each step takes with these durations: float64 [s] of float64 [n, k]."""
        if self.step_ends is None:
            return self.graph.span(duration_ns)
        return np.asarray(self.each_step_ns([duration_ns])[:, 0])

    def each_step_ns(self, durations_ns: Sequence[Float64]) -> Float64:
        """Return how long each step takes with each of j durations: float64 [s, j] of float64 [n, k] each."""
        together = np.concatenate(durations_ns, axis=1) if len(durations_ns) > 1 else durations_ns[0]
        if self.step_ends is None:
            return np.ascontiguousarray(self.graph.span(together).reshape(len(durations_ns), -1).T)
        ends_ns = self.graph.ends(together, self.step_ends.ravel()).reshape(*self.step_ends.shape, -1)
        return np.diff(ends_ns.max(axis=1), axis=0, prepend=self.begin_ns)

    def rank_ends_ns(self, duration_ns: Float64) -> dict[int, float]:
        """Return when each rank ends the last step with these durations, float64 [n, 1]; only where steps follow one
        another.
        """
        if self.step_ends is None:
            return {}
        last = self.step_ends[-1]
        ends_ns = self.graph.ends(duration_ns, last)[:, 0]
        return dict(zip(self.rank[last].tolist(), ends_ns.tolist(), strict=True))

    @cached_property
    def task_ns(self) -> Float64:
        """How long each task lasts, float64 [w, k]."""
        sums = [np.bincount(self.task, of_replica, len(self.kind)) for of_replica in self.duration_ns.T]
        return np.stack(sums, axis=1) if sums else np.zeros((len(self.kind), 0))

    @cached_property
    def has_operations(self) -> Bool:
        """Which tasks have operations, bool [w]."""
        return np.bincount(self.task, minlength=len(self.kind)) > 0

    @cached_property
    def task_rank(self) -> Int64:
        """The rank of each task, int64 [w]."""
        return self._by_task(self.rank)

    @cached_property
    def task_stage(self) -> Int64:
        """The stage of each task, int64 [w]."""
        return self._by_task(self.stage)

    def _by_task(self, values: Int64) -> Int64:
        result = np.full(len(self.kind), -1, dtype=np.int64)
        result[self.task] = values
        return result

    def with_task_times(self, task_ns: Float64) -> Float64:
        """Return durations, float64 [n, k], with which the tasks last `task_ns`, float64 [w, k].

        The operations of a task change in proportion; where it took no time, each gets the same part.
        """
        changed = np.flatnonzero((task_ns != self.task_ns).any(axis=1))
        index = np.full(len(self.kind), -1)
        index[changed] = np.arange(len(changed))
        index = index[self.task]
        operations = np.flatnonzero(index >= 0)
        index, result = index[operations], self.duration_ns.copy()
        target_ns, measured_ns = task_ns[changed], self.task_ns[changed]
        ratio = np.divide(target_ns, measured_ns, out=np.zeros_like(measured_ns), where=measured_ns != 0)
        counts = np.bincount(index, minlength=len(changed))[:, None]
        equal_part_ns = np.where(measured_ns == 0, target_ns / np.maximum(counts, 1), 0.0)
        result[operations] = result[operations] * ratio[index] + equal_part_ns[index]
        return result


@dataclass(frozen=True, kw_only=True, eq=False)
class OperationGraph:
    """A job's operations, ready to be replayed.

    Attributes:
        step_groups: the steps, those with the same graph together.
        types: names of the types of operations.
        communication_kinds: kinds of tasks that transfer.
        host_kinds: kinds of tasks that are the work of hosts beside devices.
        order_kinds: kinds of tasks through which operations wait only because the program says so; the waits vanish if
            they take `NEVER_NS`.
        transfers_are_known: whether transfers are without waiting for ranks that are missing.
        stage_kinds: kinds of tasks that a stage of a pipeline consists of: only ranks of the same stage do the same.
        network_links: the ranks that each connects.
        machines: the name of each rank's machine, None where it is not known.
        devices: the name of each rank's device, None where it is not known.
        message_bytes: the size of messages, by their kind of task.
        clock_error_ns: by how much times of different ranks may be wrong.
        notes: what was left out, and why.
    """

    step_groups: tuple[GraphSteps, ...]
    types: tuple[str, ...]
    communication_kinds: frozenset[int]
    host_kinds: frozenset[int] = frozenset()
    order_kinds: frozenset[int] = frozenset()
    transfers_are_known: bool = True
    stage_kinds: frozenset[int] = frozenset()
    network_links: tuple[tuple[int, ...], ...] = ()
    machines: Mapping[int, str | None] = field(default_factory=dict)
    devices: Mapping[int, str | None] = field(default_factory=dict)
    message_bytes: Mapping[int, int] = field(default_factory=dict)
    clock_error_ns: int = 0
    notes: tuple[str, ...] = ()

    @cached_property
    def sorted_by_class(self) -> tuple[Int32, Int32, Float64]:
        """The times of all tasks, in all groups and replicas, by comparison class and time: order, class and time."""
        return self._sorted([group.comparison_class for group in self.step_groups])

    @cached_property
    def sorted_by_kind(self) -> tuple[Int32, Int32, Float64]:
        """The same by kind and time."""
        return self._sorted([group.kind for group in self.step_groups])

    def _sorted(self, labels: list[Int64]) -> tuple[Int32, Int32, Float64]:
        groups = zip(self.step_groups, labels, strict=True)
        label = np.concatenate([np.repeat(of_group, group.task_ns.shape[1]) for group, of_group in groups])
        task_ns = np.concatenate([group.task_ns.ravel() for group in self.step_groups])
        order = stable_order(label, np.argsort(task_ns))
        return order.astype(np.int32), label[order].astype(np.int32), task_ns[order]

    def is_transfer(self, group: GraphSteps) -> Bool:
        """Return which tasks transfer, bool [w]."""
        return np.isin(group.kind, sorted(self.communication_kinds))

    def is_stage_work(self, group: GraphSteps) -> Bool:
        """Return which tasks only ranks of the same stage have, bool [w]."""
        return np.isin(group.kind, sorted(self.stage_kinds))
