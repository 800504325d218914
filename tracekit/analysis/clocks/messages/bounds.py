"""What messages prove about two clocks: no receive ends before its send begins.

A message from A to B bounds from above how far B's clock is ahead of A's, and one from B to A bounds it from below.
Together the bounds leave a set of lines over time, each of which is possible. One-way delays bound clocks in the same
way (Moon, Skelly and Towsley, "Estimation and Removal of Clock Skew from Network Delay Measurements", INFOCOM 1999).

Where no line fits all bounds, a clock has jumped. Then as many bounds as possible are on a first line, as many as
possible of the rest on a second one, and so on. Near an end of a recording, where all messages may go one way, a line
may have bounds on one side only. Then the jump is at least as large as they prove, and may be anywhere among them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from tracekit.analysis.clocks.fit import LARGEST_DRIFT
from tracekit.model.events import Bool, Float64

_MOST_PIECES = 4  # more contradictions are no jumps of a clock
_INTERVALS = 256  # of the time axis; the tightest bound of each is enough
_ROUNDS = 50  # of golden sections, each of which leaves 0.618 of an interval
_GOLDEN = (math.sqrt(5) - 1) / 2

__all__ = ["BoundedClock", "BoundedPiece", "bound_clock"]


@dataclass(frozen=True, kw_only=True)
class BoundedPiece:
    """From `from_x` on, the clock is ahead by `offset + slope * x`. `from_error` is how far `from_x` may be off.

    All of these are in the unit of `x`: ns.

    `between`: the places of the two bounds between which the jump lies that begins the piece. None for the first piece
    and where other clocks tell when it is.
    `is_one_sided`: all bounds are on one side, and the line touches them. The jump that begins or ends such a piece may
    be larger than it seems, and may lie anywhere in the piece.
    `is_unproven`: another clock jumps where the piece begins. The bounds show no jump here, but leave room for it.
    """

    from_x: float
    from_error: float
    offset: float
    between: tuple[int, int] | None = None
    is_one_sided: bool = False
    is_unproven: bool = False


@dataclass(frozen=True, kw_only=True)
class BoundedClock:
    """Lines near the middle of all lines that bounds leave.

    Attributes:
        pieces: one, and one more for each jump.
        slope: None if the bounds leave a slope of 0; the lines are then level.
        error: the largest distance between these lines and possible ones, but for lines with bounds on one side.
    """

    pieces: tuple[BoundedPiece, ...]
    slope: float | None
    error: float

    def x_of(self, shown: float) -> float:
        """Return x where the clock shows `shown`, which is x and how far it is ahead there."""
        slope = self.slope or 0.0
        begun = [p for p in self.pieces if p.from_x + p.offset + slope * p.from_x <= shown]
        return (shown - (begun or self.pieces)[-1 if begun else 0].offset) / (1 + slope)


def bound_clock(x: Float64, bound: Float64, is_upper: Bool, begin: float, end: float) -> BoundedClock | None:
    """Return lines between n bounds, [n] each, for x from `begin` to `end`.

    Return None where a piece has no bound on one side and is not one of several at an end, where the bounds leave no
    common slope, or where there would be many pieces. No slope is steeper than `LARGEST_DRIFT`.
    """
    order = np.argsort(x, kind="stable")
    x, bound, is_upper = x[order], bound[order], is_upper[order]
    parts: list[slice] = []
    first = 0
    while first < len(x):
        if len(parts) == _MOST_PIECES:
            return None
        parts.append(slice(first, _end_of_fitting(x, bound, is_upper, first)))
        first = parts[-1].stop
    sides = [_Bounds.of(x[part], bound[part], is_upper[part]) for part in parts]
    is_bounded = [piece.are_on_both_sides for piece in sides]
    if not any(is_bounded) or not all(is_bounded[1:-1]):
        return None
    slopes = [piece.slopes() for piece in sides]
    flattest, steepest = max(low for low, _ in slopes), min(high for _, high in slopes)
    if flattest > steepest:
        return None
    slope = None if flattest <= 0 <= steepest else (flattest + steepest) / 2
    jumps = [_jump_between(x, bound, is_upper, *pair) for pair in pairwise(parts)]
    edges = [begin, *(float(x[after] + x[before]) / 2 for before, after in jumps), end]
    pieces, error = [], 0.0
    for i, side in enumerate(sides):
        offset, possible = side.middle(edges[i : i + 2], slope or 0.0, slopes[i])
        error = max(error, possible)
        piece = BoundedPiece(from_x=edges[i], from_error=0.0, offset=offset, is_one_sided=not is_bounded[i])
        if i > 0:
            before, after = jumps[i - 1]
            first = before if is_bounded[i - 1] else parts[i - 1].start
            last = after if is_bounded[i] else parts[i].stop - 1
            from_error, between = float(x[after] - x[before]) / 2, (int(order[first]), int(order[last]))
            piece = replace(piece, from_error=from_error, between=between)
        pieces.append(piece)
    return BoundedClock(pieces=tuple(pieces), slope=slope, error=error)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Bounds:
    """The tightest bounds in a piece without jumps: float64 [k] and [m]."""

    low_x: Float64
    low: Float64
    high_x: Float64
    high: Float64

    @classmethod
    def of(cls, x: Float64, bound: Float64, is_upper: Bool) -> _Bounds:
        high_x, high = _tightest(x[is_upper], bound[is_upper])
        low_x, low = _tightest(x[~is_upper], -bound[~is_upper])
        return cls(low_x=low_x, low=-low, high_x=high_x, high=high)

    def top(self, slope: float) -> float:
        """Return where the highest line of a slope meets x = 0."""
        return float((self.high - slope * self.high_x).min(initial=math.inf))

    def bottom(self, slope: float) -> float:
        """Return where the lowest line of a slope meets x = 0."""
        return float((self.low - slope * self.low_x).max(initial=-math.inf))

    def gap(self, slope: float) -> float:
        """Return by how much lines of a slope can be shifted; it is negative if none is possible."""
        return self.top(slope) - self.bottom(slope)

    def best_slope(self) -> float:
        return _peak(self.gap, -LARGEST_DRIFT, LARGEST_DRIFT)

    def slopes(self) -> tuple[float, float]:
        """Return the flattest and the steepest possible slope, of at least one."""
        if not self.are_on_both_sides:
            return -LARGEST_DRIFT, LARGEST_DRIFT
        best = self.best_slope()
        return _edge(self.gap, best, -LARGEST_DRIFT), _edge(self.gap, best, LARGEST_DRIFT)

    @property
    def are_on_both_sides(self) -> bool:
        return bool(len(self.low) and len(self.high))

    def middle(self, ends: Sequence[float], slope: float, slopes: tuple[float, float]) -> tuple[float, float]:
        """Return where the middle line of a slope meets x = 0, and how far lines of possible `slopes` are off it.

        If all bounds are on one side, it is the line that they touch. ends: of the piece.
        """
        if not self.are_on_both_sides:
            return (self.bottom(slope) if len(self.low) else self.top(slope)), 0.0
        # The highest of many lines is a convex function of x, so its distance from one line is largest at an end.
        extents = [(x, *self.extent(x, *slopes)) for x in ends]
        top = max(most - slope * x for x, _, most in extents)
        bottom = min(least - slope * x for x, least, _ in extents)
        return (top + bottom) / 2, (top - bottom) / 2

    def extent(self, x: float, flattest: float, steepest: float) -> tuple[float, float]:
        """Return the lowest and the highest that a possible line is at `x`."""
        highest = _peak(lambda slope: self.top(slope) + slope * x, flattest, steepest)
        lowest = _peak(lambda slope: -self.bottom(slope) - slope * x, flattest, steepest)
        return self.bottom(lowest) + lowest * x, self.top(highest) + highest * x


def _fit_one_line(x: Float64, bound: Float64, is_upper: Bool) -> bool:
    """Return whether a line of a possible slope meets n bounds, [n] each."""
    bounds = _Bounds.of(x, bound, is_upper)
    return not bounds.are_on_both_sides or bounds.gap(bounds.best_slope()) >= 0


def _end_of_fitting(x: Float64, bound: Float64, is_upper: Bool, first: int) -> int:
    """Return the first place after `first` whose bound contradicts those from `first` on; n if none does."""

    def fit(stop: int) -> bool:
        return _fit_one_line(x[first:stop], bound[first:stop], is_upper[first:stop])

    if fit(len(x)):
        return len(x)
    fits, fails = first + 1, len(x)
    while fails - fits > 1:
        middle = (fits + fails) // 2
        fits, fails = (middle, fails) if fit(middle) else (fits, middle)
    return fits


def _jump_between(x: Float64, bound: Float64, is_upper: Bool, before: slice, after: slice) -> tuple[int, int]:
    """Return the places of two bounds between which the jump from a part to the next one lies.

    The last bounds of the part before it may be so wide that they are on the line behind it as well.
    """
    end = after.stop
    fits, fails = after.start, before.start
    while fits - fails > 1:
        middle = (fits + fails) // 2
        if _fit_one_line(x[middle:end], bound[middle:end], is_upper[middle:end]):
            fits = middle
        else:
            fails = middle
    return fails, after.start


def _tightest(x: Float64, bound: Float64) -> tuple[Float64, Float64]:
    """Return the lowest bound of each of many intervals of x."""
    if len(x) <= _INTERVALS:
        return x, bound
    interval = ((x - x.min()) * (_INTERVALS / max(float(np.ptp(x)), 1.0))).astype(np.int64)
    order = np.lexsort((bound, interval))
    first = order[np.diff(interval[order], prepend=-1) != 0]
    return x[first], bound[first]


def _peak(function: Callable[[float], float], begin: float, end: float) -> float:
    """Return where a concave function is largest, by golden sections (Kiefer, "Sequential Minimax Search for a
    Maximum", 1953).
    """
    left, right = end - _GOLDEN * (end - begin), begin + _GOLDEN * (end - begin)
    at_left, at_right = function(left), function(right)
    for _ in range(_ROUNDS):
        if at_left < at_right:
            begin, left, at_left = left, right, at_right
            right = begin + _GOLDEN * (end - begin)
            at_right = function(right)
        else:
            end, right, at_right = right, left, at_left
            left = end - _GOLDEN * (end - begin)
            at_left = function(left)
    return (begin + end) / 2


def _edge(function: Callable[[float], float], inside: float, outside: float) -> float:
    """Return how far towards `outside` a concave function that is not negative `inside` stays so."""
    if function(outside) >= 0:
        return outside
    for _ in range(_ROUNDS):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if function(middle) >= 0 else (inside, middle)
    return inside
