"""The slope that several sets of points share, each at its own level, and how precise slope and levels are.

The fit is robust: a point far off its line does not count. It is an M-estimate with Tukey's biweight. Its covariance is
that of Huber, "Robust Statistics", 1981, section 7.6. With few points it is the line of least squares, whose errors are
exact in Student's distribution. Deviations of neighbours that are alike count as fewer independent ones
(von Storch and Zwiers, "Statistical Analysis in Climate Research", 1999, section 6.6.8).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracekit.analysis.stats.medians import MAD_TO_SIGMA
from tracekit.model.events import Float64, Int64

_FEWEST_ROBUST = 16  # of fewer points the median deviation says too little
_ENOUGH = 500  # points of a set; of more, this many are sampled evenly
_ROUNDS = 10
_TUKEY = 4.685  # 95 % efficient for normal deviations
_MOST_ALIKE = 0.95

__all__ = ["ParallelLines", "fit_parallel_lines"]


@dataclass(frozen=True, kw_only=True)
class ParallelLines:
    """Lines of one slope.

    Attributes:
        slope: in units of y per unit of x.
        slope_error: its standard error; infinity where the points do not determine the slope.
        sigma: by how much one of n points may be off so that a level's standard error is `sigma / sqrt(n)`.
        degrees: of freedom.
    """

    slope: float
    slope_error: float
    sigma: float
    degrees: int


def fit_parallel_lines(x: Float64, y: Float64, sets: Sequence[slice], *, resolution: float) -> ParallelLines:
    """Return the slope of the points in `sets`, which are slices of `x` and `y` in order of x, at least one point each.

    No typical deviation counts as smaller than the `resolution` of y.
    """
    samples = [_sample(part) for part in sets]
    rows = np.concatenate(samples)
    begins = np.cumsum([0, *(len(sample) for sample in samples[:-1])])
    which = np.repeat(np.arange(len(samples)), [len(sample) for sample in samples])
    degrees = len(rows) - len(samples) - 1
    slope = _median_slope(x, y, samples)
    if slope is None or degrees < 1:
        return ParallelLines(slope=slope or 0.0, slope_error=math.inf, sigma=math.inf, degrees=max(degrees, 0))
    robust = len(rows) >= _FEWEST_ROBUST
    at, values = x[rows], y[rows]
    from_middle = at - _means(at, which)[which]
    sigma = error = math.inf
    for _ in range(_ROUNDS):
        rest = values - slope * at
        if robust:
            rest = rest - _medians(rest, which, begins)[which]
            typical = MAD_TO_SIGMA * float(np.median(np.abs(rest))) * math.sqrt(len(rows) / degrees)
        else:
            rest = rest - _means(rest, which)[which]
            typical = math.sqrt(float(rest @ rest) / degrees)
        typical = max(typical, resolution)
        inside = np.maximum(1 - np.square(rest / (_TUKEY * typical)), 0) if robust else np.ones(len(rows))
        weight = np.square(inside)
        dx = at - _means(at, which, weight)[which]
        leverage = float(weight @ (dx * dx))
        if leverage <= 0:
            return ParallelLines(slope=slope, slope_error=math.inf, sigma=typical, degrees=degrees)
        change = float((weight * dx) @ rest) / leverage
        slope += change
        pull = weight * rest  # what each point contributes to the estimate
        sigma = typical
        if robust:
            sigma = _sigma_of_estimate(pull, inside, degrees)
        sigma *= _likeness_factor(pull, which)
        error = sigma / math.sqrt(float(from_middle @ from_middle))
        if abs(change) < error / 30:
            break
    return ParallelLines(slope=slope, slope_error=error, sigma=sigma, degrees=degrees)


def _sample(part: slice) -> Int64:
    """Return evenly spaced positions of a set, a limited number of them."""
    count = part.stop - part.start
    chosen = min(count, _ENOUGH)
    return np.asarray(part.start + np.arange(chosen, dtype=np.int64) * count // chosen)


def _median_slope(x: Float64, y: Float64, samples: Sequence[Int64]) -> float | None:
    """Return the median slope between points that lie half a set apart; None without two points of different x."""
    slopes = []
    for rows in samples:
        half = len(rows) // 2
        early, late = rows[: len(rows) - half], rows[half:]
        elapsed = x[late] - x[early]
        slopes.append((y[late] - y[early])[elapsed > 0] / elapsed[elapsed > 0])
    together = np.concatenate(slopes)
    return float(np.median(together)) if len(together) else None


def _medians(values: Float64, which: Int64, begins: Int64) -> Float64:
    """Return the median of each set's values. Sets follow each other, and each begins at its place in `begins`."""
    ordered = values[np.lexsort((values, which))]
    count = np.diff(begins, append=len(values))
    return np.asarray((ordered[begins + (count - 1) // 2] + ordered[begins + count // 2]) / 2)


def _means(values: Float64, which: Int64, weight: Float64 | None = None) -> Float64:
    """Return the mean of each set's values; 0 where the weights of a set are 0."""
    weight = np.ones(len(values)) if weight is None else weight
    total = np.bincount(which, weight)
    return np.bincount(which, weight * values) / np.where(total > 0, total, 1.0)


def _sigma_of_estimate(pull: Float64, inside: Float64, degrees: int) -> float:
    """Return the deviation of a point that gives the M-estimate its standard error.

    `pull` is Tukey's psi of each deviation, in units of y. `inside` is 1 less the square of the deviation in units of
    the distance beyond which points do not count.
    """
    derivative = inside * (5 * inside - 4) * (inside > 0)
    mean = float(derivative.mean())
    if mean <= 0:
        return math.inf
    correction = 1 + (len(pull) - degrees) / len(pull) * float(derivative.var()) / mean**2
    return correction * math.sqrt(float(pull @ pull) / degrees) / mean


def _likeness_factor(pull: Float64, which: Int64) -> float:
    """Return by how much errors grow because neighbours deviate alike: fewer points are independent."""
    neighbours = which[1:] == which[:-1]
    variance = float(pull @ pull) / len(pull)
    if variance <= 0 or not neighbours.any():
        return 1.0
    alike = float((pull[1:] * pull[:-1])[neighbours].mean()) / variance
    alike = min(max(alike, 0.0), _MOST_ALIKE)
    return math.sqrt((1 + alike) / (1 - alike))
