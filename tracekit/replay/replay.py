"""Replay of a dependency graph: when would each operation have run, had operations lasted otherwise?

    compute a ----> send --.                  An operation starts when the last one that it waits for has ended.
                            )  one group      A group is a collective, or a send and its receive. Each member ends its
    compute b ----> recv --'----> compute c   transfer time after the last member has started.

The order is worked out once. A replay then computes all operations of a level, and all replicas, at a time. Replicas
are steps, or other instances, with the same graph. So replays with other durations are cheap.

From a replay follows which operations bound it: the chain of those that waited for each other until the last one ended.
`even_stage_factors` tells by which factor the work of each stage of a pipeline changes when its stages are evened out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tracekit.model.columnar import Columnar
from tracekit.model.events import Float64, Int32, Int64


class CyclicGraphError(ValueError):
    """Operations wait for each other.

    Attributes:
        operations: int64, those that wait for each other, or for such operations.
    """

    def __init__(self, operations: Int64) -> None:
        super().__init__(f"{len(operations)} operations wait for each other")
        self.operations = operations


@dataclass(frozen=True, kw_only=True, eq=False)
class ReplayTimes:
    """When n operations run in k replicas.

    Attributes:
        start: float64 [n, k], from the replica's begin.
        end: float64 [n, k], from the replica's begin.
    """

    start: Float64
    end: Float64

    @property
    def span(self) -> Float64:
        """When the last operation ends, float64 [k]."""
        return np.asarray(self.end.max(axis=0)) if len(self.end) else np.zeros(self.end.shape[1])


@dataclass(frozen=True, kw_only=True, eq=False)
class _TopologicalLevel:
    """The m operations, in g groups, that wait only for operations of earlier levels.

    Attributes:
        first: position of the first of them in replay order.
        stop: position behind the last of them.
        waits: int32, positions of the operations that they wait for, those of one operation together.
        waits_first: int32 [m], where in `waits` those of each operation begin.
        group_first: int64 [g], where each group begins among the m operations.
        group: int32 [m], the group of each operation.
    """

    first: int
    stop: int
    waits: Int32
    waits_first: Int32
    group_first: Int64
    group: Int32


@dataclass(frozen=True, kw_only=True, eq=False)
class DependencyGraph:
    """Which of n operations waits for which, as levels.

    Attributes:
        order: int64 [n], the operations, as `build_graph` numbers them, in replay order.
        levels: what can be replayed at a time, one after another.
    """

    order: Int64
    levels: tuple[_TopologicalLevel, ...]

    def __len__(self) -> int:
        return len(self.order)

    def replay(self, duration: Float64) -> ReplayTimes:
        """Return when the operations run if they last `duration`, float64 [n, k]."""
        start = np.empty(duration.shape)
        end = self._ends(duration, start)
        timeline = ReplayTimes(start=np.empty_like(start), end=np.empty_like(start))
        timeline.start[self.order], timeline.end[self.order] = start, end[:-1]
        return timeline

    def span(self, duration: Float64) -> Float64:
        """Return when the last operation ends, float64 [k], if the operations last `duration`, float64 [n, k]."""
        end = self._ends(duration)[:-1]
        return np.asarray(end.max(axis=0)) if len(end) else np.zeros(duration.shape[1])

    def ends(self, duration: Float64, operations: Int64) -> Float64:
        """Return when some operations end, float64 [m, k], if all last `duration`, float64 [n, k].

        operations: int64 [m].
        """
        return np.asarray(self._ends(duration)[self._position[operations]])

    @cached_property
    def _position(self) -> Int64:
        """Where each operation is in replay order, int64 [n]."""
        position = np.empty_like(self.order)
        position[self.order] = np.arange(len(self.order))
        return position

    def _ends(self, duration: Float64, start: Float64 | None = None) -> Float64:
        """Return when the operations end, in replay order, float64 [n + 1, k]; `start` gets when they begin.

        The last row is the begin: operations that wait for no other wait for it.
        """
        count, replicas = duration.shape
        assert count == len(self.order)
        end = np.zeros((count + 1, replicas))
        np.take(duration, self.order, axis=0, out=end[:-1])
        for level in self.levels:
            started = end.take(level.waits, axis=0)
            if len(level.waits_first) < len(level.waits):
                started = np.maximum.reduceat(started, level.waits_first, axis=0)
            if start is not None:
                start[level.first : level.stop] = started
            if len(level.group_first) < len(level.group):
                started = np.maximum.reduceat(started, level.group_first, axis=0).take(level.group, axis=0)
            end[level.first : level.stop] += started
        return end


def build_graph(count: int, before: Int32 | Int64, after: Int32 | Int64, group: Int64) -> DependencyGraph:
    """Return the graph of `count` operations in which `after[i]` waits for `before[i]`, int32 or int64 [e] each.

    group: int64 [count], equal for operations that synchronise; -1 for the others.

    Raises CyclicGraphError when operations wait for each other.
    """
    numbered = _numbered(group)
    level = _levels(before, after, numbered)
    position = _positions(level, numbered)
    order = np.empty(count, dtype=np.int64)
    order[position] = np.arange(count)
    level = level[numbered]
    # An operation that waits for no other waits for the begin, whose position is behind the last.
    free = np.flatnonzero(np.bincount(after, minlength=count) == 0)
    waits = np.concatenate((position[before], np.full(len(free), count, dtype=np.int32)))
    waiting = np.concatenate((position[after], position[free]))
    waits = waits[stable_order(waiting)]
    first_wait = np.concatenate(([0], np.cumsum(np.bincount(waiting, minlength=count))))
    edges = np.searchsorted(level[order], np.arange(int(level.max(initial=-1)) + 2))
    opens = np.diff(numbered[order], prepend=-1) != 0  # all members of a group are on one level
    opened, number = np.flatnonzero(opens), np.cumsum(opens, dtype=np.int32) - 1
    levels = []
    for first, stop in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        levels.append(
            _TopologicalLevel(
                first=first,
                stop=stop,
                waits=waits[first_wait[first] : first_wait[stop]],
                waits_first=(first_wait[first:stop] - first_wait[first]).astype(np.int32),
                group_first=opened[number[first] : number[stop - 1] + 1] - first,
                group=number[first:stop] - number[first],
            )
        )
    return DependencyGraph(order=order, levels=tuple(levels))


def stable_order(label: Int32 | Int64, order: Int64 | None = None) -> Int64:
    """Return the order of labels, int32 or int64 [n], not negative; alike ones stay in `order`, or as they are.

    It sorts by 16 bits at a time, for which numpy has a radix sort: faster by far than comparing.
    """
    bits = int(label.max(initial=0)).bit_length()
    for shift in range(0, max(bits, 1), 16):
        digit = ((label >> shift) & 0xFFFF).astype(np.uint16)
        order = np.argsort(digit, kind="stable") if order is None else order[np.argsort(digit[order], kind="stable")]
    assert order is not None
    return order


def _numbered(group: Int64) -> Int32:
    """Return groups numbered from 0, int32 [n]: first the given ones, then one for each operation that has none."""
    alone = group < 0
    result = np.empty(len(group), dtype=np.int32)
    if int(group.max(initial=-1)) <= len(group):
        present = np.bincount(group[~alone]) > 0
        result[~alone] = (np.cumsum(present) - 1)[group[~alone]]
    else:
        result[~alone] = np.unique(group[~alone], return_inverse=True)[1].reshape(-1)
    first = int(result[~alone].max(initial=-1)) + 1
    result[alone] = np.arange(first, first + int(alone.sum()))
    return result


def _positions(level: Int32, group: Int32) -> Int32:
    """Return where each operation is in replay order, int32 [n]: level after level, the members of a group together.

    level: of each group, int32 [g]. group: of each operation, int32 [n].
    """
    counts = np.bincount(group, minlength=len(level))
    by_level = stable_order(level)
    first = np.empty(len(level), dtype=np.int64)
    first[by_level] = np.cumsum(counts[by_level]) - counts[by_level]
    position = first[group].astype(np.int32)
    together = np.flatnonzero(counts[group] > 1)
    members = together[stable_order(group[together])]
    opens = np.flatnonzero(np.diff(group[members], prepend=-1))
    sizes = np.diff(np.append(opens, len(members)))
    position[members] += (np.arange(len(members)) - np.repeat(opens, sizes)).astype(np.int32)
    return position


def _levels(before: Int32 | Int64, after: Int32 | Int64, group: Int32) -> Int32:
    """Return the level of each group, int32 [g]: how many groups end, one after another, before it can."""
    groups = int(group.max(initial=-1)) + 1
    source, target = group[before], group[after]
    target = target[stable_order(source)]
    leaving = np.bincount(source, minlength=groups)
    first = np.concatenate(([0], np.cumsum(leaving)))
    open_ends = np.bincount(target, minlength=groups)
    level = np.full(groups, -1, dtype=np.int32)
    ready = np.flatnonzero(open_ends == 0)
    last = np.empty(groups, dtype=np.int64)
    number = 0
    while len(ready):
        level[ready] = number
        counts = leaving[ready]
        # the edges that leave the groups of this level: one range of `target` for each group
        offsets = (first[ready] - counts.cumsum() + counts).repeat(counts)
        reached = target[offsets + np.arange(len(offsets))]
        np.subtract.at(open_ends, reached, 1)
        ready = reached[open_ends[reached] == 0]
        positions = np.arange(len(ready))
        last[ready] = positions
        ready = ready[last[ready] == positions]  # each group once; np.unique takes ten times as long for a few
        number += 1
    if (level < 0).any():
        raise CyclicGraphError(np.flatnonzero(level[group] < 0))
    return level


def even_stage_factors(kind: Int64, stage: Int64, rank: Int64, work_ns: Float64, *, kinds: int, stages: int) -> Float64:
    """Return the factors, float64 [kinds, stages + 1], that make all stages take equally long for a kind of work.

    kind, stage, rank: int64 [n] of the work's n samples; work_ns: float64 [n]. A rank takes as long as the median of
    its samples, and a stage as long as the quickest of its ranks, so that neither a slow step nor a slow replica is an
    imbalance. All stages that do this kind of work get the mean of theirs. The factor is 1 where there are no samples,
    and in the last column, so that work without a stage, -1, stays as it is.
    """
    ranks = int(rank.max(initial=0)) + 1
    by_stage_ns = np.full((kinds, stages), np.nan)
    for label, values_ns in group_values((kind * stages + stage) * ranks + rank, work_ns):
        place = np.unravel_index(label // ranks, by_stage_ns.shape)
        by_stage_ns[place] = np.fmin(by_stage_ns[place], np.median(values_ns))
    known = np.isfinite(by_stage_ns)
    total_ns = np.where(known, by_stage_ns, 0.0).sum(axis=1)
    even_ns = np.divide(total_ns, known.sum(axis=1), out=np.zeros(kinds), where=known.any(axis=1))
    factors = np.ones((kinds, stages + 1))
    np.divide(even_ns[:, None], by_stage_ns, out=factors[:, :stages], where=known & (by_stage_ns > 0))
    return factors


def group_values(label: Int64, values: Float64) -> Iterator[tuple[int, Float64]]:
    """Yield each label with its values, ascending. label: int64 [n], not negative; values: float64 [n]."""
    if not len(label):
        return
    order = stable_order(label)
    label, values = label[order], values[order]
    first = np.flatnonzero(np.diff(label, prepend=-1))
    for begin, end in zip(first.tolist(), [*first[1:].tolist(), len(label)], strict=True):
        yield int(label[begin]), values[begin:end]


@dataclass(frozen=True, kw_only=True, eq=False)
class ChainOperations(Columnar):
    """m operations of the chains of k replicas, each chain from the begin of its replica to the end, without gaps.

    Attributes:
        replica: int64 [m], ascending.
        operation: int64 [m], in order of time.
        length_ns: float64 [m]; those of a replica sum to its span.
    """

    replica: Int64
    operation: Int64
    length_ns: Float64


def critical_chains(graph: DependencyGraph, duration_ns: Float64) -> ChainOperations:
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
    return ChainOperations(
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
        for position, operation in enumerate(graph.order[level.first : level.stop].tolist()):
            before = level.waits[bounds[position] : bounds[position + 1]]
            waits[operation] = graph.order[before[before < count]]
    return waits
