"""Which items are connected, directly or through others, and how deep each is in a forest.

Items each of which comes after at most one other form a forest. What flows along it is computed depth by depth.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tracekit.model.events import ABSENT, Int64
from tracekit.stats.grouped import grouped


class DisjointSets:
    """Sets of items without a common one, which are joined two at a time. At first every item is alone.

    Source: union-find with path halving (Tarjan and van Leeuwen, J. ACM 31 (1984), p. 245).
    """

    def __init__(self) -> None:
        self._parent: dict[int, int] = {}

    def join(self, one: int, other: int) -> bool:
        """Join the sets of two items. Return whether they were apart."""
        root, other_root = self._root(one), self._root(other)
        self._parent[max(root, other_root)] = min(root, other_root)
        return root != other_root

    def sets(self) -> list[list[int]]:
        """Return the sets of all items that were joined, each ascending, by their smallest item."""
        return list(grouped((self._root(item), item) for item in sorted(self._parent)).values())

    def _root(self, item: int) -> int:
        parent = self._parent
        while (above := parent.setdefault(item, item)) != item:
            parent[item] = item = parent[above]
        return item


def connected_components(pairs: Iterable[tuple[int, int]]) -> list[list[int]]:
    """Return the sets of items that pairs connect, each ascending, by their smallest item."""
    joined = DisjointSets()
    for one, other in set(pairs):
        joined.join(one, other)
    return joined.sets()


def deepest_first(before: Int64) -> list[Int64]:
    """Return the items in sets of one depth, int64 each, the deepest first. The depth is how many others lead to an
    item; those of depth 0 are left out.

    before: int64 [n], the item before each, or -1.
    """
    depth = (before != ABSENT).astype(np.int64)
    further = before.copy()
    going = np.flatnonzero(further != ABSENT)
    while len(going):  # each round doubles how far back an item has looked
        beyond = further[going]
        depth[going], further[going] = depth[going] + depth[beyond], further[beyond]
        going = going[further[going] != ABSENT]
    order = np.argsort(depth, kind="stable")
    bounds = np.searchsorted(depth[order], np.arange(1, int(depth.max(initial=0)) + 1))
    return np.split(order, bounds)[:0:-1]
