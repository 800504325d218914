"""Which rows hold each value, or each combination of values, such as the messages from one rank to another."""

from __future__ import annotations

import numpy as np

from tracekit.model.events import Int32, Int64


def rows_by_value(values: Int32 | Int64) -> dict[int, Int64]:
    """Return the rows of each value, int64 [m] in ascending order. values: int [n]."""
    order = np.argsort(values, kind="stable")
    numbers, first = np.unique(values[order], return_index=True)
    of_values = np.split(order, first[1:]) if len(order) else []
    return dict(zip(numbers.tolist(), of_values, strict=True))


def rows_by_key(*columns: Int32 | Int64) -> dict[tuple[int, ...], Int64]:
    """Return the rows of each combination of values, int64 [m] in ascending order. columns: int [n] each.

    Combinations are in ascending order.
    """
    order = np.lexsort(columns[::-1])
    keys = np.stack(columns, axis=1)[order]
    first = np.flatnonzero(np.append(True, (keys[1:] != keys[:-1]).any(axis=1))) if len(order) else order
    of_keys = np.split(order, first[1:]) if len(order) else []
    return dict(zip(map(tuple, keys[first].tolist()), of_keys, strict=True))


def number_rows(*columns: Int32 | Int64) -> Int64:
    """Return a number for each row, int64 [n], equal for equal rows, and 0 <= i < g. columns: int [n] each."""
    result = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        values, index = np.unique(column, return_inverse=True)
        result = np.unique(result * len(values) + index, return_inverse=True)[1]
    return result
