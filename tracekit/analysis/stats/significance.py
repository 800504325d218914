"""How well the mean of a few values is known, and when it differs from zero by more than chance."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tracekit.model.events import Float64

__all__ = ["error_growth", "least_significant", "standard_error"]

_STANDARD_ERRORS = 4.0
_MOST_CORRELATED = 0.8  # a series that drifts has no error that its values show
_FAR = 3.0  # deviations; what is farther off counts as that far: it is an outlier, and tells nothing of its neighbours
_QUARTILES_TO_SIGMA = 1 / 1.349  # for a normal distribution


def least_significant(deviation: float, count: int) -> float:
    """Return what the mean of `count` values must exceed, in their unit: 4 standard errors, and never less than one
    standard deviation, which is `deviation`.
    """
    return deviation * max(1.0, _STANDARD_ERRORS / math.sqrt(count))


def standard_error(values: Sequence[float] | Float64) -> float:
    """Return the standard error of the mean, in the unit of the values; 0 for a single value: it is not known."""
    return float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else 0.0


def error_growth(series: Sequence[Float64]) -> float:
    """Return the factor by which correlation makes the errors of means larger, at least 1. series: float64 [n] each.

    The correlation of neighbours is that of an autoregressive process of first order, the mean over the series. Short
    series show it as too small, by (1 + 3 r) / n (M. G. Kendall, "Note on bias in the estimation of autocorrelation",
    Biometrika 41, 1954), which is added. Only what exceeds one standard error counts.
    """
    values = sum(map(len, series))
    correlation = sum(len(each) * _neighbour_correlation(each) for each in series) / values
    correlation += (1 + 3 * correlation) * len(series) / values - 1 / math.sqrt(values)
    correlation = min(max(correlation, 0.0), _MOST_CORRELATED)
    return math.sqrt((1 + correlation) / (1 - correlation))


def _neighbour_correlation(values: Float64) -> float:
    first, middle, last = np.quantile(values, [0.25, 0.5, 0.75])
    limit = _FAR * _QUARTILES_TO_SIGMA * (last - first)
    deviations = np.clip(values - middle, -limit, limit)
    square = float(deviations @ deviations)
    return float(deviations[1:] @ deviations[:-1]) / square if square else 0.0
