"""How well a number is known, whether it differs from zero by more than chance, and whether it is worth a word.

The error of a saving is one standard error: 20 +- 3 ms is between 14 and 26 ms in 95 of 100 cases. What is worth a word
is in `findings/thresholds`.

Where the values of a sample lie, and by how much two samples are apart, is estimated so that a few values that are far
off hardly move it. The estimates of a normal distribution are nearly as precise as means (J. L. Hodges and E. L.
Lehmann, "Estimates of location based on rank tests", Annals of Mathematical Statistics 34, 1963).

What is typical of the other ranks is a median of each row without one of its values. The inputs are values [n, k] of k
ranks in n instances, and a mask [n, k] of those that are known. The order of the ranks does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from tracekit.findings.finding import Condition
from tracekit.findings.thresholds import CLEAR_ERRORS, NOTABLE_SAVING
from tracekit.model.events import Bool, Float64, Int64

MAD_TO_SIGMA = 1.4826  # for a normal distribution
MEDIAN_TO_MEAN_ERROR = 1.2533  # standard error of a median over that of a mean
_STANDARD_ERRORS = 4.0
_MOST_CORRELATED = 0.8  # a series that drifts has no error that its values show
_FAR = 3.0  # deviations; what is farther off counts as that far: it is an outlier, and tells nothing of its neighbours
_QUARTILES_TO_SIGMA = 1 / 1.349  # for a normal distribution
_MOST_VALUES = 2000  # of more, values at even distances: all pairs would take gigabytes

_MISSING = np.iinfo(np.int64).max


def is_worthwhile(saving_ns: float, error_ns: float, step_ns: float, least: float = NOTABLE_SAVING) -> bool:
    """Return whether a change saves more than a share of a step, `least`, and surely not 0."""
    return saving_ns > max(CLEAR_ERRORS * error_ns, least * step_ns)


def saving_conditions(saving_ns: float, error_ns: float, step_ns: float) -> tuple[Condition, Condition]:
    """Return the conditions that a change saves a notable share of the step, and surely not 0."""
    errors = saving_ns / error_ns if error_ns else 10 * CLEAR_ERRORS * (saving_ns > 0)
    return NOTABLE_SAVING.reached_by(saving_ns / max(step_ns, 1)), CLEAR_ERRORS.reached_by(errors)


def standard_error(values: Sequence[float] | Float64) -> float:
    """Return the standard error of the mean, in the unit of the values; 0 for a single value: it is not known."""
    return float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else 0.0


def median_error(values: ArrayLike) -> float:
    """Return the standard error of the median of at least one value, in the unit of the values.

    It is from the median absolute deviation, which a few values that are far off do not change (Huber, "Robust
    Statistics", 1981).
    """
    numbers = np.asarray(values, dtype=np.float64)
    deviation = float(np.median(np.abs(numbers - np.median(numbers))))
    return MEDIAN_TO_MEAN_ERROR * MAD_TO_SIGMA * deviation / math.sqrt(len(numbers))


def least_significant(deviation: float, count: int) -> float:
    """Return what the mean of `count` values must exceed, in their unit: 4 standard errors, and never less than one
    standard deviation, which is `deviation`.
    """
    return deviation * max(1.0, _STANDARD_ERRORS / math.sqrt(count))


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


def student_deviations(normal: float, degrees: float) -> float:
    """Return how many standard errors are as improbable as `normal` ones of a normal distribution.

    It is the quantile of Student's distribution, the inverse of `student_tail`; infinity for fewer than 2 degrees of
    freedom. At 2 deviations it is 0.5 % high for 4 degrees, at 3 deviations 3 %; better for more.
    """
    if degrees < 2:
        return math.inf
    z = normal * (8 * degrees + 3) / (8 * degrees + 1)
    return math.sqrt(degrees * math.expm1(z * z / degrees))


def student_quantile(probability: float, degrees: float) -> float:
    """Return a quantile above the median of Student's t: the inverse of `student_tail`."""
    return student_deviations(float(NormalDist().inv_cdf(probability)), degrees)


def student_tail(t: float, degrees: float) -> float:
    """Return the chance that Student's t exceeds `t`, at least 0.

    Source: Wallace, "Bounds on normal approximations to Student's and the chi-square distributions" (1959).
    """
    z = (8 * degrees + 1) / (8 * degrees + 3) * math.sqrt(degrees * math.log1p(t * t / degrees))
    return 0.5 * math.erfc(z / math.sqrt(2))


def quartiles(values: Int64, group: Int64) -> tuple[Int64, Int64, Int64]:
    """Return the first quartile, the median and the third quartile of the values of each group, int64 [g] each.

    Groups are 0 <= i < g, and each has values. The median is rounded down.
    """
    counts = np.bincount(group)
    ordered = values[np.lexsort((values, group))]
    first, last = np.cumsum(counts) - counts, counts - 1
    low, high = ordered[first + last // 2], ordered[first + counts // 2]
    return ordered[first + last // 4], low + (high - low) // 2, ordered[first + last - last // 4]


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
    position = max(pairs / 2 - NormalDist().inv_cdf(0.5 + confidence / 2) * deviation, 0.0)
    ends = np.interp([position, pairs - 1 - position], np.arange(pairs), differences)
    return Shift(float(ends[0]), float(np.median(differences)), float(ends[1]))


def median_excluding(values: Int64, known: Bool, excluded: Int64) -> Int64:
    """Return int64 [n]: the median of the known values of each row without that of rank `excluded[i]`, rounded down.

    `values` and `known` are [n, k]. The excluded values must be known. A row without other known values gives 0.
    """
    low, high = _middle_two(values, known, excluded)
    return low + (high - low) // 2


def leave_one_out_medians(values: Int64, known: Bool) -> Int64:
    """Return int64 [n, k]: for every rank the result of `median_excluding`."""
    order = np.argsort(np.where(known, values, _MISSING), axis=1, kind="stable")
    position = np.argsort(order, axis=1, kind="stable")
    ordered = np.take_along_axis(values, order, axis=1)
    others = known.sum(axis=1, keepdims=True) - known
    low, high = (
        np.take_along_axis(ordered, np.minimum(middle + (middle >= position), values.shape[1] - 1), axis=1)
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
    position = (known_values < known_values[row, excluded][:, None]).sum(
        axis=1
    )  # of the excluded value among the sorted ones
    first, second = (others - 1) // 2, others // 2
    positions = np.unique((first, second, first + 1, second + 1))
    known_values.partition(positions[positions < values.shape[1]].tolist(), axis=1)
    return known_values[row, first + (first >= position)], known_values[row, second + (second >= position)]
