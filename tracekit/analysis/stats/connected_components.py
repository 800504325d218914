"""Which items are connected, directly or through others."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["DisjointSets", "connected_components"]


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
        result: dict[int, list[int]] = {}
        for item in sorted(self._parent):
            result.setdefault(self._root(item), []).append(item)
        return list(result.values())

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
