"""How well the mean of a few values is known, and when it differs from zero by more than chance."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tracekit.model.events import Float64

__all__ = ["least_significant", "standard_error"]

_STANDARD_ERRORS = 4.0


def least_significant(deviation: float, count: int) -> float:
    """Return what the mean of `count` values must exceed, in their unit: 4 standard errors, and never less than one
    standard deviation, which is `deviation`.
    """
    return deviation * max(1.0, _STANDARD_ERRORS / math.sqrt(count))


def standard_error(values: Sequence[float] | Float64) -> float:
    """Return the standard error of the mean, in the unit of the values; 0 for a single value: it is not known."""
    return float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else 0.0
