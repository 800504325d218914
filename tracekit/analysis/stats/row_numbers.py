"""Numbers for the rows of several columns, equal for equal rows."""

from __future__ import annotations

import numpy as np

from tracekit.model.events import Int32, Int64

__all__ = ["number_rows"]


def number_rows(*columns: Int32 | Int64) -> Int64:
    """Return a number for each row, int64 [n], equal for equal rows, and 0 <= i < g. columns: int [n] each."""
    result = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        values, place = np.unique(column, return_inverse=True)
        result = np.unique(result * len(values) + place, return_inverse=True)[1]
    return result
