"""Which single changes would shorten the step, and by how much: each is tried in a replay."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from tracekit.analysis.replay.even_stages import even_stage_factors, group_values
from tracekit.analysis.replay.operation_graph import GraphSteps, OperationGraph
from tracekit.analysis.replay.replay import Float64
from tracekit.analysis.whatif.replays import Replays

__all__ = ["BALANCED_STAGES", "Change", "find_worthwhile_changes"]

BALANCED_STAGES = "perfectly balanced stages"
_TRIED_RANKS = 8
_SHOWN_RANKS = 3
_LEAST_SHARE = 0.01  # of the measured step: a smaller saving is not shown
_LEAST_ERRORS = 2  # a saving below this many times its uncertainty may be none


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change and what it saves.

    Attributes:
        what: the change in words.
        saves_ns_per_step: how much shorter the mean step would be.
        error_ns: the uncertainty of that, from the replay's error, the spread over steps and the clocks' uncertainty.
        share: the saving as a share of the measured step.
        rank: the rank to change, if it is one.
    """

    what: str
    saves_ns_per_step: int
    error_ns: int
    share: float
    rank: int | None = None


def find_worthwhile_changes(
    replays: Replays, steps_ns: Float64, measured_ns: float, replay_error: float, ranks: Iterable[int]
) -> tuple[Change, ...]:
    """Return the changes whose saving exceeds its uncertainty, the largest saving first.

    steps_ns: float64 [s], the steps as replayed. measured_ns: the mean measured step. ranks: those to try first.
    """
    graph, changes = replays.graph, []

    def consider(what: str, task_times: Callable[[GraphSteps], Float64], rank: int | None = None) -> bool:
        saved_ns = steps_ns - replays.step_ns([group.with_task_times(task_times(group)) for group in graph.step_groups])
        mean_ns = float(saved_ns.mean())
        spread_ns = float(saved_ns.std(ddof=1)) / len(saved_ns) ** 0.5 if len(saved_ns) > 1 else 0.0
        error_ns = float(np.sqrt((mean_ns * replay_error) ** 2 + spread_ns**2 + graph.clock_error_ns**2))
        worthwhile = mean_ns > _LEAST_ERRORS * error_ns and mean_ns > _LEAST_SHARE * measured_ns
        if worthwhile:
            changes.append(
                Change(
                    what=what,
                    saves_ns_per_step=round(mean_ns),
                    error_ns=round(error_ns),
                    share=mean_ns / measured_ns,
                    rank=rank,
                )
            )
        return worthwhile

    shown = 0
    for rank in list(ranks)[:_TRIED_RANKS]:
        task_times = _rank_at_median(graph, rank)
        shown += consider(f"rank {rank} at its peers' median", task_times, rank)
        if shown == _SHOWN_RANKS:
            break
    if any(graph.is_transfer(group).any() for group in graph.step_groups):
        consider(
            "no exposed communication",
            lambda group: np.where(graph.is_transfer(group)[:, None], 0.0, group.task_ns),
        )
    stages = {stage for group in graph.step_groups for stage in np.unique(group.task_stage).tolist() if stage >= 0}
    if len(stages) > 1:
        factors = _stage_factors(graph)
        consider(BALANCED_STAGES, lambda group: group.task_ns * factors[group.kind, group.task_stage][:, None])
    return tuple(sorted(changes, key=lambda change: -change.saves_ns_per_step))


def _rank_at_median(graph: OperationGraph, rank: int) -> Callable[[GraphSteps], Float64]:
    """Return task times with the rank's compute at the median that other ranks take for the same.

    Tasks are the same if they are of one comparison class. Tasks that no other rank has, and transfers, stay as
    measured.
    """
    computes = [~graph.is_transfer(group) for group in graph.step_groups]
    groups = list(zip(graph.step_groups, computes, strict=True))
    task_class = np.concatenate([np.repeat(g.comparison_class[c], g.task_ns.shape[1]) for g, c in groups])
    task_rank = np.concatenate([np.repeat(g.task_rank[c], g.task_ns.shape[1]) for g, c in groups])
    task_ns = np.concatenate([g.task_ns[c].ravel() for g, c in groups])
    classes = int(max(group.comparison_class.max(initial=0) for group in graph.step_groups)) + 1
    median_ns = np.full(classes, np.nan)
    relevant = np.isin(task_class, task_class[task_rank == rank]) & (task_rank != rank)
    for number, values_ns in group_values(task_class[relevant], task_ns[relevant]):
        median_ns[number] = np.median(values_ns)

    def task_times(group: GraphSteps) -> Float64:
        target_ns = median_ns[group.comparison_class]
        changed = (group.task_rank == rank) & np.isfinite(target_ns)
        return np.where(changed[:, None], target_ns[:, None], group.task_ns)

    return task_times


def _stage_factors(graph: OperationGraph) -> Float64:
    """Return the factors, float64 [kinds, stages + 1], that make all stages compute equally long."""
    kinds = max(int(group.kind.max(initial=0)) for group in graph.step_groups) + 1
    stages = max(int(group.task_stage.max(initial=0)) for group in graph.step_groups) + 1
    kind, stage, task_ns = [], [], []
    for group in graph.step_groups:
        computes = ~graph.is_transfer(group) & (group.task_stage >= 0)
        replicas = group.task_ns.shape[1]
        kind.append(np.repeat(group.kind[computes], replicas))
        stage.append(np.repeat(group.task_stage[computes], replicas))
        task_ns.append(group.task_ns[computes].ravel())
    return even_stage_factors(
        np.concatenate(kind), np.concatenate(stage), np.concatenate(task_ns), kinds=kinds, stages=stages
    )
