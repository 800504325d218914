"""How long the steps of a job take with measured durations, with ideal ones, and with any mixture of the two."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import cached_property

import numpy as np

from tracekit.analysis.replay.even_stages import group_values
from tracekit.analysis.replay.operation_graph import GraphSteps, OperationGraph
from tracekit.analysis.replay.replay import Float64
from tracekit.model.events import Bool, Int64

__all__ = ["Replays"]

_REPLAYS_AT_ONCE = 16


class Replays:
    """Replays of an operation graph.

    Attributes:
        graph: what is replayed.
        measured: of each group of steps the durations as measured, float64 [n, k].
        ideal: the durations with every task of compute at the mean of its kind, and every transfer at the median of
            its kind, over ranks and steps.
    """

    def __init__(self, graph: OperationGraph) -> None:
        self.graph = graph
        self.measured = [group.duration_ns for group in graph.step_groups]
        ideal_ns = _ideal_times(graph)
        self.ideal = [
            group.with_task_times(np.broadcast_to(ideal_ns[group.kind, None], group.task_ns.shape))
            for group in graph.step_groups
        ]

    def step_ns(self, durations: list[Float64]) -> Float64:
        """Return how long each step takes, float64 [s]. durations: of each group of steps, float64 [n, k]."""
        groups = zip(self.graph.step_groups, durations, strict=True)
        return np.concatenate([group.step_ns(duration_ns) for group, duration_ns in groups])

    def mixed_ns(self, is_measured: Callable[[GraphSteps], Bool]) -> float:
        """Return the mean step if the chosen operations, bool [n], last as measured, and the others ideally."""
        groups = zip(self.graph.step_groups, self.measured, self.ideal, strict=True)
        return float(
            self.step_ns(
                [np.where(is_measured(group)[:, None], measured, ideal) for group, measured, ideal in groups]
            ).mean()
        )

    @cached_property
    def ideal_ns(self) -> float:
        """The mean step if all is ideal, T_ideal."""
        return float(self.step_ns(self.ideal).mean())

    def largest_possible_delay_ns(self) -> dict[int, float]:
        """Return for each rank an upper bound of the time that it alone adds to the mean step.

        It is the time that all its operations last beyond the ideal. No path through the graph holds more of it.
        """
        beyond_ns: dict[int, float] = defaultdict(float)
        for group, measured, ideal in zip(self.graph.step_groups, self.measured, self.ideal, strict=True):
            by_operation_ns = np.maximum(measured - ideal, 0).sum(axis=1)
            known = group.rank >= 0
            ranks, number = np.unique(group.rank[known], return_inverse=True)
            by_rank_ns = np.bincount(number, by_operation_ns[known])
            for rank, rank_ns in zip(ranks.tolist(), by_rank_ns.tolist(), strict=True):
                beyond_ns[rank] += rank_ns
        steps = sum(len(group.measured_ns) for group in self.graph.step_groups)
        return {rank: rank_ns / steps for rank, rank_ns in beyond_ns.items()}

    def slowdowns(self, label: Callable[[GraphSteps], Int64]) -> dict[int, float]:
        """Return the slowdown S of each label: only operations with this label last as measured, the others ideally.

        label: gives each operation its label, int64 [n]; -1 is none.
        """
        every = np.unique(np.concatenate([label(group) for group in self.graph.step_groups]))
        result: dict[int, float] = {}
        labels = every[every >= 0].tolist()
        for first in range(0, len(labels), _REPLAYS_AT_ONCE):
            together = labels[first : first + _REPLAYS_AT_ONCE]
            steps_ns = []
            for group, measured, ideal in zip(self.graph.step_groups, self.measured, self.ideal, strict=True):
                of_operation = label(group)[:, None]
                durations = [np.where(of_operation == chosen, measured, ideal) for chosen in together]
                steps_ns.append(group.each_step_ns(durations))
            mean_ns = np.concatenate(steps_ns).mean(axis=0)
            slowdowns = mean_ns / self.ideal_ns if self.ideal_ns else np.ones(len(together))
            result |= dict(zip(together, slowdowns.tolist(), strict=True))
        return result


def _ideal_times(graph: OperationGraph) -> Float64:
    """Return how long a task of each kind lasts ideally, float64 [kinds]."""
    kind = np.concatenate([np.repeat(group.kind, group.task_ns.shape[1]) for group in graph.step_groups])
    task_ns = np.concatenate([group.task_ns.ravel() for group in graph.step_groups])
    ideal_ns = np.zeros(int(kind.max(initial=-1)) + 1)
    for number, values_ns in group_values(kind, task_ns):
        ideal_ns[number] = np.median(values_ns) if number in graph.communication_kinds else values_ns.mean()
    return ideal_ns
