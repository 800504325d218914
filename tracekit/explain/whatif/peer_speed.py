"""How long tasks and transfers would last at the speed of their peers, and which network links are slower."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from tracekit.explain.communication.slow_messages import Reference, UsualTime, usual_of_alike, usual_without_alike
from tracekit.model.events import ABSENT, Bool, Float64, Int64
from tracekit.replay.operation_graph import (
    LIMIT,
    NEVER_NS,
    NO_TRAINING,
    ROLES,
    SYNCHRONISATION,
    GraphSteps,
    OperationGraph,
)

_NO_TRAINING = tuple(map(ROLES.index, NO_TRAINING))


def at_peers_speed(graph: OperationGraph, ranks: Collection[int]) -> list[Float64]:
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


@dataclass(frozen=True, kw_only=True)
class SlowGraphLink:
    """A network link whose transfers take longer than those of others that carry the same.

    Attributes:
        number: index into the network links of the graph.
        excess_ns: how much longer all its transfers take together.
        usual_ns: by kind of task how long the others take, the median of their medians.
        reference: what it is compared with.
    """

    number: int
    excess_ns: float
    usual_ns: Mapping[int, float]
    reference: Reference


def find_slow_links(graph: OperationGraph) -> list[SlowGraphLink]:
    """Return the slow network links, the slowest first.

    Links are compared that carry the same kind and size, among as many ranks on as many machines. For messages that no
    other link carries across as many machines there are other references (`usual_without_alike`). Those of unknown size
    are not compared.
    """
    hosts = np.array(
        [len({graph.machines.get(rank) for rank in ranks}) for ranks in graph.network_links], dtype=np.int64
    )
    kind, network_link, duration_ns = _transfers(graph)
    unknown = [number for number, size_bytes in graph.message_bytes.items() if size_bytes == ABSENT]
    comparable = ~np.isin(kind, unknown)
    kind, network_link, duration_ns = kind[comparable], network_link[comparable], duration_ns[comparable]
    if not len(kind):
        return []
    pairs, pair = np.unique(np.stack((kind, hosts[network_link], network_link)), axis=1, return_inverse=True)
    order = np.lexsort((duration_ns, pair.reshape(-1)))
    counts = np.bincount(pair.reshape(-1))
    first = np.cumsum(counts) - counts
    ordered = duration_ns[order]
    median_ns = (ordered[first + (counts - 1) // 2] + ordered[first + counts // 2]) / 2
    excess_ns: dict[int, float] = {}
    usual_ns: dict[int, dict[int, float]] = {}
    references: dict[int, Reference] = {}
    cargo = np.unique(pairs[:2], axis=1, return_inverse=True)[1].reshape(-1)
    for which_cargo in range(int(cargo.max()) + 1):
        alike = np.flatnonzero(cargo == which_cargo)
        for index in alike.tolist():
            of_kind, _, which = pairs[:, index].tolist()
            usual = _usual(graph, pairs, median_ns, index, alike)
            if usual is not None and median_ns[index] > usual.limit_ns:
                excess_ns[which] = excess_ns.get(which, 0.0) + (median_ns[index] - usual.usual_ns) * counts[index]
                usual_ns.setdefault(which, {})[of_kind] = usual.usual_ns
                references.setdefault(which, usual.reference)
    slowest = sorted(excess_ns, key=lambda which: -excess_ns[which])
    return [
        SlowGraphLink(number=n, excess_ns=excess_ns[n], usual_ns=usual_ns[n], reference=references[n]) for n in slowest
    ]


def _usual(graph: OperationGraph, pairs: Int64, median_ns: Float64, index: int, alike: Int64) -> UsualTime | None:
    """Return how long the transfers of a network link usually take; None if nothing tells.

    pairs: kind, machines and network link, int64 [3, p].
    median_ns: float64 [p].
    index: of the link among the pairs.
    alike: pairs of the same kind on as many machines, int64 [a].
    """
    kind, machines, which = pairs[:, index].tolist()
    if len(alike) > 1:
        return usual_of_alike(float(np.median(median_ns[alike[alike != index]])))
    if kind not in graph.message_bytes or None in graph.machines.values():
        return None
    elsewhere_ns = median_ns[(pairs[0] == kind) & (pairs[1] != machines)]
    devices = [graph.devices.get(rank) for rank in graph.network_links[which]]
    return usual_without_alike(elsewhere_ns, hosts=machines, size_bytes=graph.message_bytes[kind], devices=devices)


def link_at_others_speed(graph: OperationGraph, slow: SlowGraphLink) -> list[Float64]:
    """Return the durations, float64 [n, k] of each group of steps, with the transfers of a link as long as on others.

    Transfers change by the ratio of the usual one to the link's median, so that they vary as before.
    """
    kind, network_link, duration_ns = _transfers(graph)
    factors = np.ones(int(max(group.kind.max(initial=0) for group in graph.step_groups)) + 1)
    for number, usual in slow.usual_ns.items():
        factors[number] = usual / float(np.median(duration_ns[(kind == number) & (network_link == slow.number)]))
    result = []
    for group in graph.step_groups:
        assert group.network_link is not None
        factor = np.where(group.network_link == slow.number, factors[group.kind[group.task]], 1.0)
        result.append(group.duration_ns * factor[:, None])
    return result


def _transfers(graph: OperationGraph) -> tuple[Int64, Int64, Float64]:
    """Return kind, network link and duration of all transfers over known network links."""
    parts = []
    for group in graph.step_groups:
        if group.network_link is not None:
            rows = np.flatnonzero(group.network_link >= 0)
            replicas = group.duration_ns.shape[1]
            kind, network_link = group.kind[group.task[rows]], group.network_link[rows]
            parts.append(
                (np.repeat(kind, replicas), np.repeat(network_link, replicas), group.duration_ns[rows].ravel())
            )
    if not parts:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0)
    kind, network_link, duration_ns = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return kind, network_link, duration_ns
