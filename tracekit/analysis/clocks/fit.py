"""How far one clock is ahead of another, fitted to moments that both show: offset, drift and jumps.

The fit is robust: a moment that is far off (a rank that leaves a collective late) does not count. Large numbers stay
integers; only differences become floats.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from tracekit.analysis.stats.medians import MAD_TO_SIGMA
from tracekit.model.events import Int64

_FEWEST_FOR_DRIFT = 8
_PPM = 1e-6
_WORST_DRIFT_ERROR = 2 * _PPM  # a drift with a larger error counts as unknown
_SIGNIFICANT = 3.0  # standard errors
_RESOLUTION_NS = 500.0  # of the time stamps themselves
_NEIGHBOURS = 15  # moments on each side of a jump, most of which must agree on it
_FEWEST_OF_PIECE = 5
_ENOUGH_FOR_DRIFT = 500  # moments of a piece; of more, this many are sampled evenly
_SMALLEST_JUMP_NS = 100_000.0
_JUMP_TO_NOISE = 20.0
_SPREAD_PERCENTILE = 90
_ROUNDS = 10
_TUKEY = 4.685

__all__ = ["ClockFit", "FittedPiece", "fit_clock"]

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class FittedPiece:
    """A time without jumps: from `from_ns` on (on the fitted clock), `ahead = offset_ns + drift * (time - at_ns)`.

    Attributes:
        overlaps: the clock was set back, and shows times of earlier pieces again.
    """

    from_ns: int
    at_ns: int
    offset_ns: int
    overlaps: bool


@dataclass(frozen=True, kw_only=True)
class ClockFit:
    """A fitted clock.

    Attributes:
        pieces: one, and one more for each jump of the clock.
        drift: a ratio; None when the moments do not tell it.
        spread_ns: within which nine of ten moments are met; all of them, when they are few.
        count: of the moments.
    """

    pieces: tuple[FittedPiece, ...]
    drift: float | None
    spread_ns: int
    count: int


def fit_clock(time_ns: Int64, other_ns: Int64) -> ClockFit:
    """Return how far `time_ns` is ahead of `other_ns`: n > 0 moments in any order, int64 [n] each."""
    order = np.argsort(other_ns, kind="stable")
    time_ns, other_ns = time_ns[order], other_ns[order]
    ahead_ns = time_ns - other_ns
    base_ns = int(ahead_ns[len(ahead_ns) // 2])
    y: Float64 = (ahead_ns - base_ns).astype(np.float64)
    x: Float64 = (other_ns - other_ns[len(other_ns) // 2]).astype(np.float64)
    edges = [0, *_find_jumps(x, y), len(x)]
    parts = [slice(begin, end) for begin, end in pairwise(edges)]
    drift = _drift(x, y, parts)
    level = y - (drift or 0.0) * x
    pieces, residual = [], np.empty(len(x))
    for part in parts:
        offset = float(np.median(level[part]))
        residual[part] = np.abs(level[part] - offset)
        middle = (part.start + part.stop) // 2
        begin = part.start
        pieces.append(
            FittedPiece(
                from_ns=int(time_ns[begin]) if not begin else (int(time_ns[begin - 1]) + int(time_ns[begin])) // 2,
                at_ns=int(time_ns[middle]),
                overlaps=bool(begin and time_ns[begin] < time_ns[:begin].max()),
                offset_ns=base_ns + round(offset + (drift or 0.0) * float(x[middle])),
            )
        )
    return ClockFit(
        pieces=tuple(pieces),
        # so far against the other clock, and a clock that is fast counts more of its own time
        drift=None if drift is None else drift / (1 + drift),
        spread_ns=int(np.ceil(np.percentile(residual, _SPREAD_PERCENTILE, method="higher"))),
        count=len(x),
    )


def _find_jumps(x: Float64, y: Float64) -> list[int]:
    """Return where the clock jumps: the first moment after each jump.

    Before and after it, several moments agree on levels that are far apart.
    """
    if len(x) < 2 * _FEWEST_OF_PIECE:
        return []
    lag = max(1, len(x) // 8)  # short, so that most pairs do not straddle a jump
    elapsed = np.maximum(x[lag:] - x[:-lag], 1.0)
    level = y - float(np.median((y[lag:] - y[:-lag]) / elapsed)) * x
    change = np.abs(np.diff(level))
    least = max(_JUMP_TO_NOISE * float(np.median(change)), _SMALLEST_JUMP_NS)
    candidates = np.flatnonzero(change > least) + 1
    candidates = candidates[(candidates >= _FEWEST_OF_PIECE) & (candidates <= len(x) - _FEWEST_OF_PIECE)]
    if not len(candidates):
        return []
    padded = np.pad(level, _NEIGHBOURS, constant_values=np.nan)
    windows = np.lib.stride_tricks.sliding_window_view(padded, _NEIGHBOURS)
    neighbour_change = np.abs(
        np.nanmedian(windows[candidates + _NEIGHBOURS], axis=1) - np.nanmedian(windows[candidates], axis=1)
    )
    adjacent = change[candidates - 1]
    jumps: list[int] = []
    for i in candidates[
        (neighbour_change > least) & (neighbour_change > adjacent / 2) & (adjacent > neighbour_change / 3)
    ].tolist():
        if jumps and i - jumps[-1] < _FEWEST_OF_PIECE:  # one moment on the way from level to level
            jumps.append(max(i, jumps.pop(), key=lambda place: float(change[place - 1])))
        else:
            jumps.append(i)
    edges = [0, *jumps, len(x)]
    return [
        i
        for before, i, after in zip(edges, jumps, edges[2:], strict=False)
        if abs(
            float(np.median(level[i : min(after, i + _NEIGHBOURS)]))
            - float(np.median(level[max(before, i - _NEIGHBOURS) : i]))
        )
        > least
    ]


def _evenly(part: slice) -> Int64:
    """Return evenly spaced positions of a part, a limited number of them."""
    count = part.stop - part.start
    count_chosen = min(count, _ENOUGH_FOR_DRIFT)
    return np.asarray(part.start + np.arange(count_chosen, dtype=np.int64) * count // count_chosen)


def _drift(x: Float64, y: Float64, parts: list[slice]) -> float | None:
    """Return the slope that all parts share; 0 if it is not significant, None if it is not known well enough."""
    if len(x) < _FEWEST_FOR_DRIFT:
        return None
    sampled = [_evenly(part) for part in parts]
    slopes = []
    for part_rows in sampled:
        half = len(part_rows) // 2
        early, late = part_rows[: len(part_rows) - half], part_rows[half:]
        elapsed = x[late] - x[early]
        slopes.append(((y[late] - y[early])[elapsed > 0]) / elapsed[elapsed > 0])
    all_slopes = np.concatenate(slopes)
    if not len(all_slopes):
        return None
    slope, error = float(np.median(all_slopes)), np.inf
    for _ in range(_ROUNDS):
        part_residuals = [
            part_rows - np.median(part_rows) for part_rows in (y[part] - slope * x[part] for part in sampled)
        ]
        sigma = max(MAD_TO_SIGMA * float(np.median(np.abs(np.concatenate(part_residuals)))), _RESOLUTION_NS)
        leverage, moment = 0.0, 0.0
        for part, residual in zip(sampled, part_residuals, strict=True):
            weight = np.square(np.maximum(1 - np.square(residual / (_TUKEY * sigma)), 0))
            total = float(weight.sum())
            if total:
                dx = x[part] - float(weight @ x[part]) / total
                leverage += float(weight @ (dx * dx))
                moment += float((weight * dx) @ residual)
        if leverage <= 0:
            return None
        slope, error = slope + moment / leverage, sigma / np.sqrt(leverage)
        if abs(moment / leverage) < error / 10:
            break
    if error > _WORST_DRIFT_ERROR:
        return None
    return slope if abs(slope) > _SIGNIFICANT * error else 0.0
