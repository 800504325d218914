"""Quartiles of many groups of values at once."""

from __future__ import annotations

import numpy as np

from tracekit.model.events import Int64

__all__ = ["quartiles"]


def quartiles(values: Int64, group: Int64) -> tuple[Int64, Int64, Int64]:
    """Return the first quartile, the median and the third quartile of the values of each group, int64 [g] each.

    Groups are 0 <= i < g, and each has values. The median is rounded down.
    """
    counts = np.bincount(group)
    ordered = values[np.lexsort((values, group))]
    first, last = np.cumsum(counts) - counts, counts - 1
    low, high = ordered[first + last // 2], ordered[first + counts // 2]
    return ordered[first + last // 4], low + (high - low) // 2, ordered[first + last - last // 4]
