"""Where the values of a sample lie, and by how much two samples are apart, when a few values are far off.

Such values hardly move these estimates, and those of a normal distribution are nearly as precise as means (J. L. Hodges
and E. L. Lehmann, "Estimates of location based on rank tests", Annals of Mathematical Statistics 34, 1963).
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from tracekit.model.events import Float64

__all__ = ["Shift", "pseudomedian", "shift_between", "thinned"]

_MOST_VALUES = 2000  # of more, values at even distances: all pairs would take gigabytes


class Shift(NamedTuple):
    """By how much a sample is above another one: an interval, and the median of the differences of all pairs."""

    low: float
    middle: float
    high: float


def thinned(values: Float64) -> Float64:
    """Return at most 2000 of the values, float64 [n], at even distances and in their order."""
    return values[:: max(-(-len(values) // _MOST_VALUES), 1)]


def pseudomedian(values: Float64) -> float:
    """Return the median of the means of all pairs of values, a value with itself included.

    values: float64 [n], at least one, in any unit. Of many values it is that of `thinned` ones.
    """
    values = thinned(values)
    first, second = np.triu_indices(len(values))
    return float(np.median((values[first] + values[second]) / 2))


def shift_between(before: Float64, after: Float64, confidence: float) -> Shift:
    """Return by how much `after` is above `before`, float64 [n] and [m], by the differences of all pairs.

    before, after: in the same unit, which is that of the result. The memory is that of n m values: give `thinned` ones.

    The interval is that of the rank-sum test (Mann and Whitney). If the samples differ by a shift alone, it contains
    the shift with this confidence, whatever the shape of their distribution.
    """
    differences = np.sort(np.subtract.outer(after, before), axis=None)
    pairs = len(differences)
    deviation = math.sqrt(pairs * (len(before) + len(after) + 1) / 12)  # of the count of pairs below 0
    place = max(pairs / 2 - NormalDist().inv_cdf(0.5 + confidence / 2) * deviation, 0.0)
    ends = np.interp([place, pairs - 1 - place], np.arange(pairs), differences)
    return Shift(float(ends[0]), float(np.median(differences)), float(ends[1]))
