"""How far one clock is ahead of another, fitted to samples that both show: offset and drift, and their errors.

A line is fitted to the samples. The fit is robust: a sample far off the line, such as a rank that leaves a collective
late, does not count. It is an M-estimate with Tukey's biweight. Its covariance is that of Huber, "Robust Statistics",
1981, section 7.6. With few points it is the line of least squares, whose errors are exact in Student's distribution.
Deviations of neighbours that are alike count as fewer independent ones (von Storch and Zwiers, "Statistical Analysis in
Climate Research", 1999, section 6.6.8). Large numbers stay integers; only differences become floats.

The error at time t is that of a line, `hypot(level error, drift error * (t - middle of the samples))` (Draper and
Smith, "Applied Regression Analysis", 1998, section 3.1). So it is largest at the ends of a recording.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tracekit.model.events import Float64, Int64
from tracekit.model.run import ClockModel
from tracekit.stats.uncertainty import MAD_TO_SIGMA, MEDIAN_TO_MEAN_ERROR, student_deviations

_FEWEST_FOR_DRIFT = 6
_PPM = 1e-6
_NO_DRIFT_ERROR = 2 * _PPM  # a drift that is not significant counts as none if its error is smaller, else as unknown
_SIGNIFICANT = 3.0  # standard errors
_STATED = 2.0  # standard errors: 95 of 100 cases
_MOST_OF_ALL = 0.999
_STANDS_OUT = 8.0  # times as far as samples scatter: what another rate makes of a recording
_RESOLUTION_NS = 500.0  # of the time stamps themselves
_SPREAD_PERCENTILE = 90

STEEPEST = 500 * _PPM
"""Of a clock that NTP slews (RFC 5905, 15: MAXFREQ). More is no drift."""

ODD_RATE = 0.01
"""A clock that is faster or slower than the others by this share runs at another rate: it makes steps wrong by it."""

LARGEST_DRIFT = 100 * _PPM
"""What two clocks drift apart at most, where nothing is measured: two crystals of +-50 ppm, their usual tolerance."""

_FEWEST_ROBUST = 16  # of fewer points the median deviation says too little
_ENOUGH = 500  # points; of more, this many are sampled evenly
_ROUNDS = 10
_TUKEY = 4.685  # 95 % efficient for normal deviations
_MOST_ALIKE = 0.95


@dataclass(frozen=True, kw_only=True)
class ClockFit:
    """A fitted clock: `ahead = offset_ns + drift * (time - at_ns)`.

    Attributes:
        at_ns: a moment on the fitted clock.
        middle_ns: the middle of the samples, where the error is smallest.
        level_error_ns: the error of the offset there.
        drift: a ratio; None when the samples do not tell it.
        drift_error: how far the drift may be off; that of no drift where it is None.
        spread_ns: within which nine of ten samples are met; all of them, when they are few.
    """

    at_ns: int
    offset_ns: int
    middle_ns: int
    level_error_ns: float
    drift: float | None
    drift_error: float
    spread_ns: int

    def error_ns(self, begin_ns: int, end_ns: int) -> int:
        """Return the largest error of the line from `begin_ns` to `end_ns` on the fitted clock, which is at an end.

        A drift that is not fitted adds all that it may amount to.
        """
        drifted_ns = self.drift_error * max(abs(begin_ns - self.middle_ns), abs(end_ns - self.middle_ns))
        both_ns = math.hypot(self.level_error_ns, drifted_ns) if self.drift else self.level_error_ns + drifted_ns
        return math.ceil(both_ns)


def fit_clock(time_ns: Int64, other_ns: Int64) -> ClockFit:
    """Return how far `time_ns` is ahead of `other_ns`: n > 0 samples in any order, int64 [n] each."""
    order = np.argsort(other_ns, kind="stable")
    time_ns, other_ns = time_ns[order], other_ns[order]
    ahead_ns, middle = time_ns - other_ns, len(other_ns) // 2
    base_ns = int(ahead_ns[middle])
    y: Float64 = (ahead_ns - base_ns).astype(np.float64)
    x: Float64 = (other_ns - other_ns[middle]).astype(np.float64)
    line = fit_line(x, y, resolution=_RESOLUTION_NS)
    drift, drift_error = _drift(line, x)
    level = y - (drift or 0.0) * x
    offset = float(np.median(level))
    residual = np.abs(level - offset)
    return ClockFit(
        at_ns=int(time_ns[middle]),
        offset_ns=base_ns + round(offset),
        middle_ns=int(time_ns[middle]) + round(float(x.mean())),
        level_error_ns=_level_error_ns(line, residual),
        # so far against the other clock, and a clock that is fast counts more of its own time
        drift=None if drift is None else drift / (1 + drift),
        drift_error=drift_error,
        spread_ns=int(np.ceil(np.percentile(residual, _SPREAD_PERCENTILE, method="higher"))),
    )


def _drift(line: Line, x: Float64) -> tuple[float | None, float]:
    """Return the drift and how far it may be off. It is None if the samples do not tell it, and 0 if they tell none."""
    if len(x) < _FEWEST_FOR_DRIFT or not math.isfinite(line.slope_error):
        return None, LARGEST_DRIFT
    if STEEPEST < abs(line.slope) < ODD_RATE or line.slope < -_MOST_OF_ALL:  # no clock, or one that stands still
        return None, LARGEST_DRIFT
    if abs(line.slope) >= ODD_RATE and abs(line.slope) * float(np.ptp(x)) < _STANDS_OUT * line.sigma:
        return None, LARGEST_DRIFT  # a busy host lets a rank leave late for a while
    stated = student_deviations(_STATED, line.degrees) * line.slope_error
    if abs(line.slope) > student_deviations(_SIGNIFICANT, line.degrees) * line.slope_error:
        return line.slope, stated
    possible = min(abs(line.slope) + stated, LARGEST_DRIFT)
    return (0.0 if line.slope_error <= _NO_DRIFT_ERROR else None), possible


def _level_error_ns(line: Line, deviations: Float64) -> float:
    """Return the error of the level, the median of n samples, given their deviations from it, float64 [n]."""
    sigma, degrees, count = line.sigma, line.degrees, len(deviations)
    if count < _FEWEST_FOR_DRIFT:  # there is a level only
        degrees = count - 1
        sigma = math.sqrt(float(deviations @ deviations) / max(degrees, 1))
    if degrees < 2:
        return max(float(deviations.max()), _RESOLUTION_NS)
    return student_deviations(_STATED, degrees) * MEDIAN_TO_MEAN_ERROR * max(sigma, _RESOLUTION_NS) / math.sqrt(count)


def model_of_fit(rank: int, recorded_ns: tuple[int, int], fit: ClockFit) -> ClockModel:
    """Return the model of a rank's clock. Its error is that of the fit anywhere from begin to end of its recording."""
    return ClockModel(
        rank=rank,
        method="collectives",
        offset_ns=fit.offset_ns,
        at_ns=fit.at_ns,
        drift_ppm=None if fit.drift is None else fit.drift * 1e6,
        error_ns=fit.error_ns(*recorded_ns),
    )


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
