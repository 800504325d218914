"""When the mean of a few values differs from zero by more than chance."""

from __future__ import annotations

import math

__all__ = ["least_significant"]

_STANDARD_ERRORS = 4.0


def least_significant(deviation: float, count: int) -> float:
    """Return what the mean of `count` values must exceed, in their unit: 4 standard errors, and never less than one
    standard deviation, which is `deviation`.
    """
    return deviation * max(1.0, _STANDARD_ERRORS / math.sqrt(count))
