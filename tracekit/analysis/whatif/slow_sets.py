"""Sets of ranks that are slow together, such as those of one machine or one stage."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from tracekit.analysis.replay.operation_graph import LIMIT, SYNCHRONISATION, OperationGraph
from tracekit.analysis.whatif.peer_levels import median_by_class
from tracekit.model.events import Int64
from tracekit.model.ranks import format_ranges

__all__ = ["name_of_set", "slow_sets"]


def slow_sets(graph: OperationGraph) -> list[tuple[int, ...]]:
    """Return sets of two ranks or more, and at most half of them, whose work takes longer than others' for the same.

    A set is what is above the largest gap between the ranks' excess. Tasks are the same if they are of one comparison
    class, or of one kind, unless that is the work of stages, which have other layers.
    """
    sets = []
    for by_kind in (False, True):
        excess_ns = _excess_by_rank(graph, by_kind=by_kind)
        slowest = sorted(excess_ns, key=lambda rank: -excess_ns[rank])
        gaps_ns = [excess_ns[slower] - excess_ns[faster] for slower, faster in pairwise(slowest)][: len(slowest) // 2]
        size = int(np.argmax(gaps_ns)) + 1 if gaps_ns else 0
        if size > 1:
            sets.append(tuple(sorted(slowest[:size])))
    return list(dict.fromkeys(sets))


def name_of_set(graph: OperationGraph, ranks: tuple[int, ...]) -> str:
    """Return what to call some ranks: their machine or stage, if it has no others."""
    machines = {graph.machines.get(rank) for rank in ranks}
    on_machine = {rank for rank, name in graph.machines.items() if name in machines}
    if len(machines) == 1 and None not in machines and on_machine == set(ranks):
        return f"host {machines.pop()} (ranks {format_ranges(ranks)})"
    stage_of = np.concatenate([np.stack((group.rank, group.stage)) for group in graph.step_groups], axis=1)
    stages: Int64 = np.unique(stage_of[1, np.isin(stage_of[0], ranks)])
    with_stage = np.unique(stage_of[0, np.isin(stage_of[1], stages)])
    if len(stages) == 1 and stages[0] >= 0 and set(with_stage.tolist()) == set(ranks):
        return f"stage {int(stages[0])} (ranks {format_ranges(ranks)})"
    return f"ranks {format_ranges(ranks)}"


def _excess_by_rank(graph: OperationGraph, *, by_kind: bool) -> dict[int, float]:
    """Return how much longer the work of each rank takes than the median of all ranks for the same."""
    chosen = [
        (group.task_rank >= 0) & ~graph.is_transfer(group) & ~(by_kind & graph.is_stage_work(group))
        & (True if group.role is None else ~np.isin(group.role, (LIMIT, SYNCHRONISATION)))
        for group in graph.step_groups
    ]  # fmt: skip
    median_ns, _ = median_by_class(graph, chosen, by_kind=by_kind)
    result: dict[int, float] = {}
    for group, mask in zip(graph.step_groups, chosen, strict=True):
        labels = group.kind if by_kind else group.comparison_class
        beyond_ns = (group.task_ns[mask] - median_ns[labels[mask]][:, None]).sum(axis=1)
        ranks, number = np.unique(group.task_rank[mask], return_inverse=True)
        for rank, rank_ns in zip(ranks.tolist(), np.bincount(number, beyond_ns).tolist(), strict=True):
            result[rank] = result.get(rank, 0.0) + rank_ns
    return result
