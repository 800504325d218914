"""How far one clock is ahead of another, fitted to moments that both show: offset, drift and jumps, and their errors.

The fit is robust: a moment that is far off (a rank that leaves a collective late) does not count. Large numbers stay
integers; only differences become floats.

The error at time t is that of a line, `hypot(level error, drift error * (t - middle of the moments))` (Draper and
Smith, "Applied Regression Analysis", 1998, section 3.1). So it is largest at the ends of a recording.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tracekit.analysis.clocks.jumps import STEEPEST, Lateness, find_jumps
from tracekit.analysis.stats.medians import MEDIAN_TO_MEAN_ERROR
from tracekit.analysis.stats.parallel_lines import ParallelLines, fit_parallel_lines
from tracekit.analysis.stats.student import student_deviations
from tracekit.model.clocks import ClockJump, ClockModel
from tracekit.model.events import Float64, Int64

_FEWEST_FOR_DRIFT = 6
_PPM = 1e-6
_NO_DRIFT_ERROR = 2 * _PPM  # a drift that is not significant counts as none if its error is smaller, else as unknown
_SIGNIFICANT = 3.0  # standard errors
_STATED = 2.0  # standard errors: 95 of 100 cases
_RESOLUTION_NS = 500.0  # of the time stamps themselves
_SPREAD_PERCENTILE = 90

LARGEST_DRIFT = 100 * _PPM
"""What two clocks drift apart at most, where nothing is measured: two crystals of +-50 ppm, their usual tolerance."""

__all__ = ["LARGEST_DRIFT", "ClockFit", "FittedPiece", "fit_clock", "model_of_fit"]


@dataclass(frozen=True, kw_only=True)
class FittedPiece:
    """A time without jumps: from `from_ns` on (on the fitted clock), `ahead = offset_ns + drift * (time - at_ns)`.

    Attributes:
        between_ns: the moments before and behind the jump that begins it; the first moment twice if none does.
        overlaps: the clock was set back, and shows times of earlier pieces again.
        middle_ns: the middle of its moments, where the error is smallest.
        error_ns: the error of the offset there.
    """

    from_ns: int
    between_ns: tuple[int, int]
    at_ns: int
    offset_ns: int
    overlaps: bool
    middle_ns: int
    error_ns: float


@dataclass(frozen=True, kw_only=True)
class ClockFit:
    """A fitted clock.

    Attributes:
        pieces: one, and one more for each jump of the clock.
        drift: a ratio; None when the moments do not tell it.
        drift_error: how far the drift may be off; that of no drift where it is None.
        spread_ns: within which nine of ten moments are met; all of them, when they are few.
        count: of the moments.
    """

    pieces: tuple[FittedPiece, ...]
    drift: float | None
    drift_error: float
    spread_ns: int
    count: int

    def error_ns(self, begin_ns: int, end_ns: int) -> int:
        """Return the largest error of the line from `begin_ns` to `end_ns` on the fitted clock, which is at an end.

        A drift that is not fitted adds all that it may amount to.
        """
        edges = [begin_ns, *(piece.from_ns for piece in self.pieces[1:]), end_ns]
        errors_ns = [0.0]
        for piece, (first_ns, last_ns) in zip(self.pieces, pairwise(edges), strict=True):
            drifted_ns = self.drift_error * max(abs(first_ns - piece.middle_ns), abs(last_ns - piece.middle_ns))
            errors_ns.append(math.hypot(piece.error_ns, drifted_ns) if self.drift else piece.error_ns + drifted_ns)
        return math.ceil(max(errors_ns))


def fit_clock(time_ns: Int64, other_ns: Int64, lateness: Callable[[], Lateness] | None = None) -> ClockFit:
    """Return how far `time_ns` is ahead of `other_ns`: n > 0 moments in any order, int64 [n] each.

    lateness: returns by how much both may be late, in the same order; see `find_jumps`.
    """
    order = np.argsort(other_ns, kind="stable")
    time_ns, other_ns = time_ns[order], other_ns[order]
    ahead_ns = time_ns - other_ns
    base_ns = int(ahead_ns[len(ahead_ns) // 2])
    y: Float64 = (ahead_ns - base_ns).astype(np.float64)
    x: Float64 = (other_ns - other_ns[len(other_ns) // 2]).astype(np.float64)
    edges = [0, *find_jumps(x, y, lateness and (lambda: lateness().rows(order))), len(x)]
    parts = [slice(begin, end) for begin, end in pairwise(edges)]
    lines = fit_parallel_lines(x, y, parts, resolution=_RESOLUTION_NS)
    drift, drift_error = _drift(lines, len(x))
    level = y - (drift or 0.0) * x
    offsets = [float(np.median(level[part])) for part in parts]
    residual = np.concatenate([np.abs(level[part] - offset) for part, offset in zip(parts, offsets, strict=True)])
    pieces = []
    for number, (part, offset) in enumerate(zip(parts, offsets, strict=True)):
        middle = (part.start + part.stop) // 2
        begin = part.start
        before, behind = _around_jump(x, level, begin, offsets[number - 1], offset) if number else (begin, begin)
        pieces.append(
            FittedPiece(
                from_ns=int(time_ns[begin]) if not begin else (int(time_ns[begin - 1]) + int(time_ns[begin])) // 2,
                between_ns=(int(time_ns[before]), int(time_ns[behind])),
                at_ns=int(time_ns[middle]),
                overlaps=bool(begin and time_ns[begin] < time_ns[:begin].max()),
                offset_ns=base_ns + round(offset + (drift or 0.0) * float(x[middle])),
                middle_ns=int(time_ns[middle]) + round(float(x[part].mean() - x[middle])),
                error_ns=_level_error_ns(lines, residual, part.stop - part.start, len(residual) - len(parts)),
            )
        )
    return ClockFit(
        pieces=tuple(pieces),
        # so far against the other clock, and a clock that is fast counts more of its own time
        drift=None if drift is None else drift / (1 + drift),
        drift_error=drift_error,
        spread_ns=int(np.ceil(np.percentile(residual, _SPREAD_PERCENTILE, method="higher"))),
        count=len(x),
    )


def _around_jump(x: Float64, level: Float64, begin: int, was: float, now: float) -> tuple[int, int]:
    """Return the places of the moments between which a jump lies that was found at `begin`.

    If the other clock was set back, moments before and behind the jump alternate in the order of `x`.

    x: times on the other clock in ns, ascending, float64 [n].
    level: how far the clock is ahead at each, without its drift, in ns, float64 [n].
    was, now: the median of the levels before and behind the jump, in ns.
    """
    jump = abs(now - was)
    near = slice(*np.searchsorted(x, (x[begin - 1] - jump, x[begin] + jump), side="right"))
    is_before = np.abs(level[near] - was) < np.abs(level[near] - now)
    first_behind = near.start + int(np.argmin(is_before))
    last_before = near.stop - 1 - int(np.argmax(is_before[::-1]))
    return max(min(first_behind, begin) - 1, 0), min(max(last_before, begin - 1) + 1, len(x) - 1)


def _drift(lines: ParallelLines, count: int) -> tuple[float | None, float]:
    """Return the drift and how far it may be off. It is None if the moments do not tell it, and 0 if they tell none."""
    if count < _FEWEST_FOR_DRIFT or not math.isfinite(lines.slope_error) or abs(lines.slope) > STEEPEST:
        return None, LARGEST_DRIFT
    stated = student_deviations(_STATED, lines.degrees) * lines.slope_error
    if abs(lines.slope) > student_deviations(_SIGNIFICANT, lines.degrees) * lines.slope_error:
        return lines.slope, stated
    possible = min(abs(lines.slope) + stated, LARGEST_DRIFT)
    return (0.0 if lines.slope_error <= _NO_DRIFT_ERROR else None), possible


def _level_error_ns(lines: ParallelLines, deviations: Float64, count: int, degrees_of_levels: int) -> float:
    """Return the error of a level, the median of `count` moments, given the `deviations` of all moments from levels."""
    sigma, degrees = lines.sigma, lines.degrees
    if len(deviations) < _FEWEST_FOR_DRIFT:  # there is a level only
        degrees = degrees_of_levels
        sigma = math.sqrt(float(deviations @ deviations) / max(degrees, 1))
    if degrees < 2:
        return max(float(deviations.max()), _RESOLUTION_NS)
    return student_deviations(_STATED, degrees) * MEDIAN_TO_MEAN_ERROR * max(sigma, _RESOLUTION_NS) / math.sqrt(count)


def model_of_fit(number: int, recorded_ns: tuple[int, int], fit: ClockFit) -> ClockModel:
    """Return the model of clock `number`. Its error is that of the fit anywhere from begin to end of its recording."""
    first, *later = fit.pieces
    # If a clock was set back, times before and after cannot be told apart. The error then covers the whole jump.
    overlap_ns = 2 * max((abs(piece.offset_ns - first.offset_ns) for piece in later if piece.overlaps), default=0)
    return ClockModel(
        rank=number,
        method="collectives",
        offset_ns=first.offset_ns,
        at_ns=first.at_ns,
        drift_ppm=None if fit.drift is None else fit.drift * 1e6,
        error_ns=fit.error_ns(*recorded_ns) + overlap_ns,
        jumps=tuple(
            ClockJump(from_ns=p.from_ns, offset_ns=p.offset_ns, at_ns=p.at_ns, between_ns=p.between_ns) for p in later
        ),
    )
