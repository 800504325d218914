"""How long the steps of a job take with measured durations, with ideal ones, and with any mixture of the two."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cached_property
from itertools import islice

import numpy as np

from tracekit.analysis.replay.even_stages import group_values
from tracekit.analysis.replay.operation_graph import GraphSteps, OperationGraph
from tracekit.model.events import Bool, Float64, Int64

__all__ = ["Replays"]

_REPLAYS_AT_ONCE = 16
_MANY_OPERATIONS = 4_000_000  # a replay of more takes a second or more
_MOST_AT_ONCE = 4_000_000  # durations that are replayed at a time, about 50 bytes each


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

    @property
    def are_long(self) -> bool:
        """Whether a replay takes so long that few are made."""
        return sum(duration_ns.size for duration_ns in self.measured) > _MANY_OPERATIONS

    def step_ns(self, durations: list[Float64]) -> Float64:
        """Return how long each step takes, float64 [s]. durations: of each group of steps, float64 [n, k]."""
        groups = zip(self.graph.step_groups, durations, strict=True)
        return np.concatenate([group.step_ns(duration_ns) for group, duration_ns in groups])

    def each_step_ns(self, durations: Iterable[list[Float64]]) -> Float64:
        """Return how long each step takes with each of j durations, float64 [s, j].

        durations: j times what `step_ns` takes. Many are replayed at a time, which costs little more than one. Of an
        iterator only these are held at a time.
        """
        at_once = max(1, min(_REPLAYS_AT_ONCE, _MOST_AT_ONCE // max(sum(part.size for part in self.measured), 1)))
        remaining, replayed = iter(durations), []
        while batch := list(islice(remaining, at_once)):
            of_groups = zip(self.graph.step_groups, zip(*batch, strict=True), strict=True)
            replayed.append(np.concatenate([group.each_step_ns(of_group) for group, of_group in of_groups]))
        return np.concatenate(replayed, axis=1)

    def mixed_ns(self, is_measured: Callable[[GraphSteps], Bool]) -> float:
        """Return the mean step if the chosen operations, bool [n], last as measured, and the others ideally."""
        groups = zip(self.graph.step_groups, self.measured, self.ideal, strict=True)
        return float(
            self.step_ns(
                [np.where(is_measured(group)[:, None], measured, ideal) for group, measured, ideal in groups]
            ).mean()
        )

    @cached_property
    def measured_and_ideal_ns(self) -> Float64:
        """How long each step takes as measured, and if all is ideal, float64 [s, 2]."""
        return self.each_step_ns([self.measured, self.ideal])

    @property
    def ideal_ns(self) -> float:
        """The mean step if all is ideal, T_ideal."""
        return float(self.measured_and_ideal_ns[:, 1].mean())

    @cached_property
    def largest_possible_delay_ns(self) -> dict[int, float]:
        """Return for each rank an upper bound of the time that it alone adds to the mean step.

        It is the time that all its operations last beyond the ideal. No path through the graph holds more of it.
        """
        beyond_ns: dict[int, float] = defaultdict(float)
        for group, measured, ideal in zip(self.graph.step_groups, self.measured, self.ideal, strict=True):
            by_operation_ns = np.maximum(measured - ideal, 0).sum(axis=1)
            ranks, place = np.unique(group.rank, return_inverse=True)
            for rank, rank_ns in zip(ranks.tolist(), np.bincount(place, by_operation_ns).tolist(), strict=True):
                if rank >= 0:
                    beyond_ns[rank] += rank_ns
        steps = sum(len(group.measured_ns) for group in self.graph.step_groups)
        return {rank: rank_ns / steps for rank, rank_ns in beyond_ns.items()}

    def slowdowns(self, label: Callable[[GraphSteps], Int64]) -> dict[int, float]:
        """Return the slowdown S of each label: only operations with this label last as measured, the others ideally.

        label: gives each operation its label, int64 [n]; -1 is none.
        """
        of_operation = [label(group)[:, None] for group in self.graph.step_groups]
        every = np.unique(np.concatenate(of_operation))
        labels = every[every >= 0].tolist()
        if not labels:
            return {}
        durations = (
            [
                np.where(of_group == chosen, measured, ideal)
                for of_group, measured, ideal in zip(of_operation, self.measured, self.ideal, strict=True)
            ]
            for chosen in labels
        )
        mean_ns = self.each_step_ns(durations).mean(axis=0)
        slowdowns = mean_ns / self.ideal_ns if self.ideal_ns else np.ones(len(labels))
        return dict(zip(labels, slowdowns.tolist(), strict=True))


def _ideal_times(graph: OperationGraph) -> Float64:
    """Return how long a task of each kind lasts ideally, float64 [kinds]."""
    parts = [(group, group.has_operations) for group in graph.step_groups]
    kind = np.concatenate([np.repeat(group.kind[some], group.task_ns.shape[1]) for group, some in parts])
    task_ns = np.concatenate([group.task_ns[some].ravel() for group, some in parts])
    ideal_ns = np.zeros(max(int(group.kind.max(initial=-1)) for group in graph.step_groups) + 1)
    for number, values_ns in group_values(kind, task_ns):
        ideal_ns[number] = np.median(values_ns) if number in graph.communication_kinds else values_ns.mean()
    return ideal_ns
