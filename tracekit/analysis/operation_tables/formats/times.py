"""Times of a table as integer nanoseconds, without rounding where the table is exact."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from tracekit.analysis.operation_tables.formats.names import UNITS
from tracekit.model.events import Int64

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["UnreadableValueError", "integers", "nanoseconds"]

_LONGEST_NS = 4 * 10**18
"""In ns since 1970 this is the year 2096: later times are in another unit."""
_DECIMAL = re.compile(r"([+-]?)(\d*)(?:\.(\d*))?")


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
    import pandas as pd

    scale = UNITS[unit]
    if pd.api.types.is_integer_dtype(values) and not values.isna().any():
        exact = [value * scale for value in values.tolist()]
    elif pd.api.types.is_numeric_dtype(values):
        exact = [_of_float(row, value, scale) for row, value in enumerate(values.astype(np.float64).tolist())]
    else:
        exact = [_of_text(row, value, scale) for row, value in enumerate(values.tolist())]
    for row, value in enumerate(exact):
        if abs(value) > _LONGEST_NS:
            raise UnreadableValueError(row, f"{values.iloc[row]} {unit} is beyond {_LONGEST_NS / 1e9:.0e} s")
    return np.array(exact, dtype=np.int64)


def integers(values: pd.Series, *, missing: int | None = None) -> Int64:
    """Return whole numbers, int64 [n]. Raises UnreadableValueError, also for an empty field if `missing` is None."""
    result = []
    for row, value in enumerate(values.tolist()):
        text = "" if value is None or value != value else str(value).strip()
        if not text and missing is not None:
            result.append(missing)
            continue
        try:
            number = float(text)
        except ValueError:
            raise UnreadableValueError(row, f"{text!r} is not a number" if text else "the field is empty") from None
        if number != round(number) or abs(number) >= 2**53:
            raise UnreadableValueError(row, f"{text} is not an integer")
        result.append(int(number))
    return np.array(result, dtype=np.int64)


def _of_text(row: int, value: object, scale: int) -> int:
    text = "" if value is None or value != value else str(value).strip()
    match = _DECIMAL.fullmatch(text)
    if match is None or not (match[2] or match[3]):
        try:
            return _of_float(row, float(text), scale)
        except ValueError:
            reason = f"{text!r} is not a number" if text else "the field is empty"
            raise UnreadableValueError(row, reason) from None
    fraction = match[3] or "0"
    exact = int(match[2] or "0") * scale + round(int(fraction) * scale / int("1" + "0" * len(fraction)))
    return -exact if match[1] == "-" else exact


def _of_float(row: int, value: float, scale: int) -> int:
    if not np.isfinite(value):
        raise UnreadableValueError(row, "the field is empty" if np.isnan(value) else f"it is {value}")
    whole = int(value)
    return whole * scale + round((value - whole) * scale)
