"""The line through points, and how precise its slope and level are.

The fit is robust: a point far off its line does not count. It is an M-estimate with Tukey's biweight. Its covariance is
that of Huber, "Robust Statistics", 1981, section 7.6. With few points it is the line of least squares, whose errors are
exact in Student's distribution. Deviations of neighbours that are alike count as fewer independent ones
(von Storch and Zwiers, "Statistical Analysis in Climate Research", 1999, section 6.6.8).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tracekit.analysis.stats.uncertainty import MAD_TO_SIGMA
from tracekit.model.events import Float64

_FEWEST_ROBUST = 16  # of fewer points the median deviation says too little
_ENOUGH = 500  # points; of more, this many are sampled evenly
_ROUNDS = 10
_TUKEY = 4.685  # 95 % efficient for normal deviations
_MOST_ALIKE = 0.95

__all__ = ["Line", "fit_line"]


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line through n points.

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


def fit_line(x: Float64, y: Float64, *, resolution: float) -> Line:
    """Return the line through at least one point, float64 [n] each, in order of x.

    No typical deviation counts as smaller than the `resolution` of y.
    """
    rows = np.arange(min(len(x), _ENOUGH)) * len(x) // min(len(x), _ENOUGH)
    at, values, degrees = x[rows], y[rows], len(rows) - 2
    slope = _median_slope(at, values)
    if slope is None or degrees < 1:
        return Line(slope=slope or 0.0, slope_error=math.inf, sigma=math.inf, degrees=max(degrees, 0))
    robust = len(rows) >= _FEWEST_ROBUST
    from_middle = at - at.mean()
    sigma = error = math.inf
    for _ in range(_ROUNDS):
        rest = values - slope * at
        if robust:
            rest = rest - np.median(rest)
            typical = MAD_TO_SIGMA * float(np.median(np.abs(rest))) * math.sqrt(len(rows) / degrees)
        else:
            rest = rest - rest.mean()
            typical = math.sqrt(float(rest @ rest) / degrees)
        typical = max(typical, resolution)
        inside = np.maximum(1 - np.square(rest / (_TUKEY * typical)), 0) if robust else np.ones(len(rows))
        weight = np.square(inside)
        dx = at - weight @ at / max(weight.sum(), 1e-300)
        leverage = float(weight @ (dx * dx))
        if leverage <= 0:
            return Line(slope=slope, slope_error=math.inf, sigma=typical, degrees=degrees)
        change = float((weight * dx) @ rest) / leverage
        slope += change
        pull = weight * rest  # what each point contributes to the estimate
        sigma = (_sigma_of_estimate(pull, inside, degrees) if robust else typical) * _likeness_factor(pull)
        error = sigma / math.sqrt(float(from_middle @ from_middle))
        if abs(change) < error / 30:
            break
    return Line(slope=slope, slope_error=error, sigma=sigma, degrees=degrees)


def _median_slope(x: Float64, y: Float64) -> float | None:
    """Return the median slope between points that lie half of them apart; None without two points of different x."""
    half = len(x) // 2
    elapsed = x[half:] - x[: len(x) - half]
    slopes = (y[half:] - y[: len(y) - half])[elapsed > 0] / elapsed[elapsed > 0]
    return float(np.median(slopes)) if len(slopes) else None


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


def _likeness_factor(pull: Float64) -> float:
    """Return by how much errors grow because neighbours deviate alike: fewer points are independent."""
    variance = float(pull @ pull) / len(pull)
    if variance <= 0 or len(pull) < 2:
        return 1.0
    alike = min(max(float((pull[1:] * pull[:-1]).mean()) / variance, 0.0), _MOST_ALIKE)
    return math.sqrt((1 + alike) / (1 - alike))
