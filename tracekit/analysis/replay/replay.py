"""Replay of a dependency graph: when would each operation have run, had operations lasted otherwise?

    compute a ----> send --.                  An operation starts when the last one that it waits for has ended.
                            )  one group      A group is a collective, or a send and its receive. Each member ends its
    compute b ----> recv --'----> compute c   transfer time after the last member has started.

The order is worked out once. A replay then computes all operations of a level, and all replicas, at a time. Replicas
are steps, or other instances, with the same graph. So replays with other durations are cheap.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tracekit.model.events import Int64

Float64 = NDArray[np.float64]

__all__ = ["CyclicGraphError", "DependencyGraph", "Float64", "ReplayTimes", "build_graph"]


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
class _Level:
    """The m operations, in g groups, that wait only for operations of earlier levels.

    Attributes:
        first: place of the first of them in replay order.
        stop: place behind the last of them.
        waits: int64, places of the operations that they wait for, those of one operation together.
        waits_first: int64 [m], where in `waits` those of each operation begin.
        group_first: int64 [g], where each group begins among the m operations.
        group: int64 [m], the group of each operation.
    """

    first: int
    stop: int
    waits: Int64
    waits_first: Int64
    group_first: Int64
    group: Int64


@dataclass(frozen=True, kw_only=True, eq=False)
class DependencyGraph:
    """Which of n operations waits for which, as levels.

    Attributes:
        order: int64 [n], the operations, as `build_graph` numbers them, in replay order.
        levels: what can be replayed at a time, one after another.
    """

    order: Int64
    levels: tuple[_Level, ...]

    def __len__(self) -> int:
        return len(self.order)

    def replay(self, duration: Float64) -> ReplayTimes:
        """Return when the operations run if they last `duration`, float64 [n, k]."""
        count, replicas = duration.shape
        assert count == len(self.order)
        duration = duration[self.order]
        start = np.empty((count, replicas))
        end = np.zeros(
            (count + 1, replicas)
        )  # the last row is the begin: operations that wait for no other wait for it
        for level in self.levels:
            started = np.maximum.reduceat(end[level.waits], level.waits_first, axis=0)
            together = np.maximum.reduceat(started, level.group_first, axis=0)
            start[level.first : level.stop] = started
            end[level.first : level.stop] = together[level.group] + duration[level.first : level.stop]
        timeline = ReplayTimes(start=np.empty_like(start), end=np.empty_like(start))
        timeline.start[self.order], timeline.end[self.order] = start, end[:-1]
        return timeline


def build_graph(count: int, before: Int64, after: Int64, group: Int64) -> DependencyGraph:
    """Return the graph of `count` operations in which `after[i]` waits for `before[i]`, int64 [e] each.

    group: int64 [count], equal for operations that synchronise; -1 for the others.

    Raises CyclicGraphError when operations wait for each other.
    """
    group = group.copy()
    alone = group < 0
    group[alone] = group.max(initial=-1) + 1 + np.arange(int(alone.sum()))
    group = np.unique(group, return_inverse=True)[1].astype(np.int64)
    level = _levels(before, after, group)
    order = np.lexsort((np.arange(count), group, level)).astype(np.int64)
    place = np.empty(count, dtype=np.int64)
    place[order] = np.arange(count)
    # An operation that waits for no other waits for the begin, whose place is behind the last.
    free = np.setdiff1d(np.arange(count), after)
    waits = np.concatenate((place[before], np.full(len(free), count)))
    waiting = np.concatenate((place[after], place[free]))
    by_waiting = np.argsort(waiting, kind="stable")
    waits, waiting = waits[by_waiting], waiting[by_waiting]
    first_wait = np.searchsorted(waiting, np.arange(count + 1))
    edges = np.searchsorted(level[order], np.arange(int(level.max(initial=-1)) + 2))
    opens = np.diff(group[order], prepend=-1) != 0  # all members of a group are on one level
    opened, number = np.flatnonzero(opens), np.cumsum(opens) - 1
    levels = []
    for first, stop in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        levels.append(
            _Level(
                first=first,
                stop=stop,
                waits=waits[first_wait[first] : first_wait[stop]],
                waits_first=first_wait[first:stop] - first_wait[first],
                group_first=opened[number[first] : number[stop - 1] + 1] - first,
                group=number[first:stop] - number[first],
            )
        )
    return DependencyGraph(order=order, levels=tuple(levels))


def _levels(before: Int64, after: Int64, group: Int64) -> Int64:
    """Return the level of each operation, int64 [n]: how many groups end, one after another, before its group can."""
    groups = int(group.max(initial=-1)) + 1
    source, target = group[before], group[after]
    by_source = np.argsort(source, kind="stable")
    target = target[by_source]
    first = np.searchsorted(source[by_source], np.arange(groups + 1))
    open_ends = np.bincount(target, minlength=groups)
    level = np.full(groups, -1, dtype=np.int64)
    ready = np.flatnonzero(open_ends == 0)
    last = np.empty(groups, dtype=np.int64)
    number = 0
    while len(ready):
        level[ready] = number
        counts = first[ready + 1] - first[ready]
        # the edges that leave the groups of this level: one range of `target` for each group
        offsets = np.repeat(first[ready] - np.cumsum(counts) + counts, counts)
        reached = target[offsets + np.arange(int(counts.sum()))]
        np.subtract.at(open_ends, reached, 1)
        ready = reached[open_ends[reached] == 0]
        places = np.arange(len(ready))
        last[ready] = places
        ready = ready[last[ready] == places]  # each group once; np.unique takes ten times as long for a few
        number += 1
    if (level < 0).any():
        raise CyclicGraphError(np.flatnonzero(level[group] < 0))
    return np.asarray(level[group])
