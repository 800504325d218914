"""Columns of a table as integers: whole numbers, and times in nanoseconds without rounding where the table is exact."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.analysis.operation_tables.formats.numbers import (
    LARGEST,
    UnreadableNumberError,
    time_ns,
    whole_number,
)
from tracekit.model.events import Int64

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["UnreadableValueError", "integers", "nanoseconds"]


class UnreadableValueError(ValueError):
    """A value of a column cannot be read.

    Attributes:
        row: its row, from 0.
    """

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(reason)
        self.row = row


def nanoseconds(values: pd.Series, unit: str) -> Int64:
    """Return times in ns, int64 [n]: numbers, or texts of which every digit counts.

    A float64 of seconds since 1970 is exact to 0.2 us; texts and integers lose nothing. Raises UnreadableValueError.
    """
    return _converted(values, lambda value: time_ns(value, unit))


def integers(values: pd.Series, *, missing: int | None = None, most: int = LARGEST) -> Int64:
    """Return whole numbers, int64 [n]. Raises UnreadableValueError, also for an empty field if `missing` is None."""

    def convert(value: object) -> int:
        is_empty = value is None or (isinstance(value, str) and not value.strip())
        return missing if is_empty and missing is not None else whole_number(value, most=most)

    return _converted(values, convert)


def _converted(values: pd.Series, convert: Callable[[Any], int]) -> Int64:
    result = np.empty(len(values), dtype=np.int64)
    present = values.astype(object).where(values.notna(), None)
    for row, value in enumerate(present.tolist()):
        try:
            result[row] = convert(value)
        except UnreadableNumberError as error:
            raise UnreadableValueError(row, str(error)) from None
    return result
