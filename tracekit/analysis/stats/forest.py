"""Items each of which comes after at most one other form a forest. What flows along it is computed depth by depth."""

from __future__ import annotations

import numpy as np

from tracekit.model.events import ABSENT, Int64

__all__ = ["deepest_first"]


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
