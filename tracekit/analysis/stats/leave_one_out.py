"""What is typical of the other ranks: medians of each row without one of its values.

The inputs are values [n, k] of k ranks in n instances, and a mask [n, k] of those that are known. The order of the
ranks does not matter.
"""

from __future__ import annotations

import numpy as np

from tracekit.model.events import Bool, Int64

__all__ = ["leave_one_out_medians", "majority_excluding", "median_excluding"]

_MISSING = np.iinfo(np.int64).max


def median_excluding(values: Int64, known: Bool, excluded: Int64) -> Int64:
    """Return int64 [n]: the median of the known values of each row without that of rank `excluded[i]`, rounded down.

    `values` and `known` are [n, k]. The excluded values must be known. A row without other known values gives 0.
    """
    low, high = _middle_two(values, known, excluded)
    return low + (high - low) // 2


def leave_one_out_medians(values: Int64, known: Bool) -> Int64:
    """Return int64 [n, k]: for every rank the result of `median_excluding`."""
    order = np.argsort(np.where(known, values, _MISSING), axis=1, kind="stable")
    place = np.argsort(order, axis=1, kind="stable")
    ordered = np.take_along_axis(values, order, axis=1)
    others = known.sum(axis=1, keepdims=True) - known
    low, high = (
        np.take_along_axis(ordered, np.minimum(middle + (middle >= place), values.shape[1] - 1), axis=1)
        for middle in (np.maximum(others - 1, 0) // 2, others // 2)
    )
    return np.where(others > 0, low + (high - low) // 2, 0)


def majority_excluding(values: Int64, known: Bool, excluded: Int64) -> Int64:
    """Return int64 [n]: the value that more than half of the other ranks have.

    For values without order, such as hashes. Where no value has a majority, the result is one of the values.
    """
    return _middle_two(values, known, excluded)[0]


def _middle_two(values: Int64, known: Bool, excluded: Int64) -> tuple[Int64, Int64]:
    """Return the two middle values of each row without the excluded one, int64 [n] each; 0 without others."""
    row = np.arange(len(values))
    if values.shape[1] == 2:
        other = np.where(known[row, 1 - excluded], values[row, 1 - excluded], 0)
        return other, other
    others = known.sum(axis=1) - 1
    low, high = values[row, excluded], values[row, excluded]
    low[others < 1] = high[others < 1] = 0
    # Many rows hold one value only, which is then their median.
    rows = np.flatnonzero((others > 0) & ~(known.all(axis=1) & (values == values[:, :1]).all(axis=1)))
    if len(rows):
        low[rows], high[rows] = _middle_two_of(values[rows], known[rows], excluded[rows], others[rows])
    return low, high


def _middle_two_of(values: Int64, known: Bool, excluded: Int64, others: Int64) -> tuple[Int64, Int64]:
    row = np.arange(len(values))
    known_values = np.where(known, values, _MISSING)
    place = (known_values < known_values[row, excluded][:, None]).sum(
        axis=1
    )  # of the excluded value among the sorted ones
    first, second = (others - 1) // 2, others // 2
    positions = np.unique((first, second, first + 1, second + 1))
    known_values.partition(positions[positions < values.shape[1]].tolist(), axis=1)
    return known_values[row, first + (first >= place)], known_values[row, second + (second >= place)]
