"""What a job did, as operations that can be replayed: what what-if questions are asked of, wherever it was recorded.

An operation belongs to a task, usually as its only one. An action that a message interrupts is one task of several
operations. Tasks of one kind would last equally long in an ideal job.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tracekit.analysis.replay.replay import DependencyGraph, Float64
from tracekit.model.events import Bool, Int64

__all__ = ["GraphSteps", "OperationGraph"]


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
        type: int64 [n], index into the types of `OperationGraph`.
        rank: int64 [n], -1 where not known.
        stage: int64 [n], -1 where not known.
        replica: int64 [n], replica of the model, -1 where not known.
        steps: int64 [s], numbers of the steps.
        measured_ns: float64 [s], how long each step was.
        step_ends: int64 [s, r], the operations that end each step where the steps follow one another in one replica;
            None where each replica is a step.
        begin_ns: when the last rank began the first of steps that follow one another. A step lasts from the last
            rank's begin to the last rank's end.
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

    def step_ns(self, duration_ns: Float64) -> Float64:
        """Return how long each step takes with these durations: float64 [s] of float64 [n, k]."""
        if self.step_ends is None:
            return self.graph.replay(duration_ns).span
        return np.asarray(self.each_step_ns([duration_ns])[:, 0])

    def each_step_ns(self, durations_ns: Sequence[Float64]) -> Float64:
        """Return how long each step takes with each of j durations: float64 [s, j] of float64 [n, k] each."""
        if self.step_ends is None:
            return np.stack([self.step_ns(duration_ns) for duration_ns in durations_ns], axis=1)
        times = self.graph.replay(np.concatenate(durations_ns, axis=1))
        return np.diff(times.end[self.step_ends].max(axis=1), axis=0, prepend=self.begin_ns)

    @cached_property
    def task_ns(self) -> Float64:
        """How long each task lasts, float64 [w, k]."""
        total = np.zeros((len(self.kind), self.duration_ns.shape[1]))
        np.add.at(total, self.task, self.duration_ns)
        return total

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
        measured_ns = self.task_ns
        ratio = np.divide(task_ns, measured_ns, out=np.zeros_like(measured_ns), where=measured_ns != 0)
        operations = np.bincount(self.task, minlength=len(self.kind))[:, None]
        equal_part_ns = np.where(measured_ns == 0, task_ns / np.maximum(operations, 1), 0.0)
        return np.asarray(self.duration_ns * ratio[self.task] + equal_part_ns[self.task])


@dataclass(frozen=True, kw_only=True, eq=False)
class OperationGraph:
    """A job's operations, ready to be replayed.

    Attributes:
        step_groups: the steps, those with the same graph together.
        types: names of the types of operations.
        communication_kinds: kinds of tasks that transfer.
        clock_error_ns: by how much times of different ranks may be wrong.
        notes: what was left out, and why.
    """

    step_groups: tuple[GraphSteps, ...]
    types: tuple[str, ...]
    communication_kinds: frozenset[int]
    clock_error_ns: int = 0
    notes: tuple[str, ...] = ()

    def is_transfer(self, group: GraphSteps) -> Bool:
        """Return which tasks transfer, bool [w]."""
        return np.isin(group.kind, sorted(self.communication_kinds))
