"""Which operations bound a replay: the chain of those that waited for each other until the last one ended."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracekit.analysis.replay.replay import DependencyGraph
from tracekit.model.columnar import Columnar
from tracekit.model.events import Float64, Int64

__all__ = ["ChainLinks", "critical_chains", "synchronised_members"]


@dataclass(frozen=True, kw_only=True, eq=False)
class ChainLinks(Columnar):
    """m operations of the chains of k replicas, each chain from the begin of its replica to the end, without gaps.

    Attributes:
        replica: int64 [m], ascending.
        operation: int64 [m], in order of time.
        length_ns: float64 [m]; those of a replica sum to its span.
    """

    replica: Int64
    operation: Int64
    length_ns: Float64


def critical_chains(graph: DependencyGraph, duration_ns: Float64) -> ChainLinks:
    """Return the chains of a replay with these durations, float64 [n, k].

    A chain is walked backwards from the operation that ends last. Of the operations that one waits for, the one that
    ended last is on the chain. A member of a group waits for the member that started last, and for what that waits for.
    """
    times = graph.replay(duration_ns)
    waits, members = _waits(graph), synchronised_members(graph)
    replicas, operations, lengths = [], [], []
    for replica in range(duration_ns.shape[1]):
        end_ns, start_ns = times.end[:, replica], times.start[:, replica]
        chain: list[int] = []
        operation = int(end_ns.argmax()) if len(end_ns) else -1
        while operation >= 0:
            chain.append(operation)
            group = members.get(operation)
            last = operation if group is None else int(group[start_ns[group].argmax()])
            before = waits[last]
            operation = int(before[end_ns[before].argmax()]) if len(before) else -1
        chain.reverse()
        ends_ns = end_ns[chain]
        replicas.append(np.full(len(chain), replica))
        operations.append(np.array(chain, dtype=np.int64))
        lengths.append(np.diff(ends_ns, prepend=0.0))
    return ChainLinks(
        replica=np.concatenate(replicas),
        operation=np.concatenate(operations),
        length_ns=np.concatenate(lengths),
    )


def synchronised_members(graph: DependencyGraph) -> dict[int, Int64]:
    """Return the members of its group for each operation that is not alone, int64 [m]."""
    members: dict[int, Int64] = {}
    for level in graph.levels:
        own = graph.order[level.first : level.stop]
        if len(level.group_first) < len(own):
            groups = np.split(own, level.group_first[1:])
            members |= {member: group for group in groups if len(group) > 1 for member in group.tolist()}
    return members


def _waits(graph: DependencyGraph) -> list[Int64]:
    """Return for each operation those that it waits for, int64 [m]."""
    count = len(graph)
    waits: list[Int64] = [np.empty(0, dtype=np.int64)] * count
    for level in graph.levels:
        bounds = [*level.waits_first.tolist(), len(level.waits)]
        for place, operation in enumerate(graph.order[level.first : level.stop].tolist()):
            before = level.waits[bounds[place] : bounds[place + 1]]
            waits[operation] = graph.order[before[before < count]]
    return waits
