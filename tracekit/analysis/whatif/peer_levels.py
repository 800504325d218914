"""How long tasks would last if ranks worked as fast as their peers."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from tracekit.analysis.replay.operation_graph import (
    LIMIT,
    NEVER_NS,
    NO_TRAINING,
    ROLES,
    SYNCHRONISATION,
    GraphSteps,
    OperationGraph,
)
from tracekit.model.events import ABSENT, Bool, Float64, Int64

__all__ = ["at_peers_level", "median_by_class", "with_limits"]

_NO_TRAINING = tuple(map(ROLES.index, NO_TRAINING))


def at_peers_level(graph: OperationGraph, ranks: Collection[int]) -> list[Float64]:
    """Return the durations, float64 [n, k] of each group of steps, with the ranks' work as long as that of others.

    A task takes the median of its comparison class over the other ranks, or of its kind if no other rank is in that
    class. Tasks that no other rank has stay as measured, and so do transfers. The work of a stage that no other rank
    has stays, too: other stages have other layers. Data that no other rank loads takes no time, nor do pauses that no
    other has, and a rank does not wait for its device where the others do not.
    """
    of_ranks, groups = np.array(sorted(ranks), dtype=np.int64), graph.step_groups
    computes = [(group.task_rank >= 0) & ~graph.is_transfer(group) for group in groups]
    changes = [mask & np.isin(group.task_rank, of_ranks) for group, mask in zip(groups, computes, strict=True)]
    others = [mask & ~changed for mask, changed in zip(computes, changes, strict=True)]
    by_class_ns, counts = median_by_class(graph, others)
    alone = [
        changed & np.isnan(by_class_ns[group.comparison_class]) & ~graph.is_stage_work(group)
        for group, changed in zip(groups, changes, strict=True)
    ]
    some_are_alone = any(of_group.any() for of_group in alone)
    by_kind_ns = median_by_class(graph, others, by_kind=True)[0] if some_are_alone else None
    result = []
    for group, changed, others_lack in zip(groups, changes, alone, strict=True):
        tasks = np.flatnonzero(changed)
        target_ns = by_class_ns[group.comparison_class[tasks]]
        if by_kind_ns is not None:
            target_ns = np.where(others_lack[tasks], by_kind_ns[group.kind[tasks]], target_ns)
        if group.role is not None and group.host_task is not None:
            hosts = counts[group.comparison_class[group.host_task[tasks]]]
            role = group.role[tasks]
            rare = np.isin(role, (*_NO_TRAINING, SYNCHRONISATION)) & (2 * counts[group.comparison_class[tasks]] < hosts)
            target_ns = np.where(rare, np.where(role == SYNCHRONISATION, NEVER_NS, 0.0), target_ns)
        known = np.isfinite(target_ns)
        task_ns = group.task_ns.copy()
        task_ns[tasks[known]] = target_ns[known][:, None]
        unknown = np.zeros(len(changed), dtype=np.bool_)
        unknown[tasks[~known]] = True
        result.append(group.with_task_times(with_limits(group, task_ns, unknown)))
    return result


def median_by_class(graph: OperationGraph, chosen: list[Bool], *, by_kind: bool = False) -> tuple[Float64, Int64]:
    """Return the median duration of the chosen tasks of each comparison class, NaN without any, and their number.

    chosen: of each group of steps a mask [w]. by_kind: of each kind instead.
    """
    groups = [(group, group.kind if by_kind else group.comparison_class) for group in graph.step_groups]
    pairs = list(zip(groups, chosen, strict=True))
    order, label, task_ns = graph.sorted_by_kind if by_kind else graph.sorted_by_class
    used = np.concatenate([np.repeat(mask, g.task_ns.shape[1]) for (g, _), mask in pairs])[order]
    classes = int(max(labels.max(initial=0) for _, labels in groups)) + 1
    task_ns, counts = task_ns[used], np.bincount(label[used], minlength=classes)
    first = np.cumsum(counts) - counts
    result, some = np.full(classes, np.nan), counts > 0
    low = first[some] + (counts[some] - 1) // 2
    high = first[some] + counts[some] // 2
    result[some] = (task_ns[low] + task_ns[high]) / 2
    return result, counts


def with_limits(group: GraphSteps, task_ns: Float64, which: Bool | None = None) -> Float64:
    """Return task times, float64 [w, k], in which limits follow the work of host and device that they consist of.

    which: the tasks of which the limits follow, bool [w]; None: all.
    """
    if group.role is None or group.host_task is None or group.device_task is None or group.host_share is None:
        return task_ns
    limits = np.flatnonzero((group.role == LIMIT) & (True if which is None else which))
    if not len(limits):
        return task_ns
    ratio = np.divide(task_ns, group.task_ns, out=np.ones_like(task_ns), where=group.task_ns > 0)
    ratio = np.concatenate((ratio, np.ones((1, ratio.shape[1]))))  # of no task
    assert ABSENT == -1
    share = group.host_share[limits][:, None]
    of_host, of_device = ratio[group.host_task[limits]], ratio[group.device_task[limits]]
    task_ns = task_ns.copy()
    task_ns[limits] = group.task_ns[limits] * (share * of_host + (1 - share) * of_device)
    return task_ns
