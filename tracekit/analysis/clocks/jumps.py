"""Where a clock jumps: several moments before and after agree on levels that are far apart."""

from __future__ import annotations

import math

import numpy as np

from tracekit.model.events import Float64

STEEPEST = 500e-6  # of a clock that NTP slews (RFC 5905, 15: MAXFREQ); more is no drift
SMALLEST_JUMP_NS = 20_000.0

_FEWEST = 5  # moments between two jumps
_FEWEST_AT_END = 2  # moments before the first jump, or after the last
_FEWEST_UNLIKE = 3  # moments on a side of a jump that need not all be close together, as two must be
_MANY = 8  # moments, of which some may be late; of fewer, all on a side of a jump must be close together
_NEIGHBOURS = 15  # moments on each side of a jump, most of which must agree on it
_JUMP_TO_NOISE = 6.0  # of the median change from moment to moment
_AGREE = 1 / 3  # of a jump, within which most moments on a side of it lie
_AGREE_SHARE = 0.75

__all__ = ["SMALLEST_JUMP_NS", "STEEPEST", "find_jumps"]


def find_jumps(x: Float64, y: Float64) -> list[int]:
    """Return the first moment after each jump of `y`, float64 [n], over ascending times `x`, float64 [n].

    Where the jump lies between two moments is not known.
    """
    if len(x) < 2 * _FEWEST_AT_END:
        return []
    lag = max(1, len(x) // 8)  # short, so that most pairs do not straddle a jump
    elapsed = np.maximum(x[lag:] - x[:-lag], 1.0)
    slope = _weighted_median((y[lag:] - y[:-lag]) / elapsed, elapsed)  # moments close together tell little of it
    level = y - min(max(slope, -STEEPEST), STEEPEST) * x
    change = np.abs(np.diff(level))
    least = max(_JUMP_TO_NOISE * float(np.median(change)), SMALLEST_JUMP_NS)
    candidates = np.flatnonzero(change > least / 2) + 1
    candidates = candidates[(candidates >= _FEWEST_AT_END) & (candidates <= len(x) - _FEWEST_AT_END)]
    if not len(candidates):
        return []
    padded = np.pad(level, _NEIGHBOURS, constant_values=np.nan)
    windows = np.lib.stride_tricks.sliding_window_view(padded, _NEIGHBOURS)
    before, after = (_medians(windows[candidates + shift]) for shift in (0, _NEIGHBOURS))
    likely = candidates[np.abs(after - before) > least]
    if not len(likely):
        return []
    # Candidates close together are one jump, with moments on the way from level to level.
    clusters = np.split(likely, np.flatnonzero(np.diff(likely) >= _FEWEST) + 1)
    jumps: list[int] = []
    for cluster, end in zip(clusters, [*(int(following[0]) for following in clusters[1:]), len(x)], strict=True):
        begin = jumps[-1] if jumps else 0
        left = level[max(begin, cluster[0] - _NEIGHBOURS) : cluster[0]]
        right = level[cluster[-1] : min(end, cluster[-1] + _NEIGHBOURS)]
        if _is_jump(left, right, least, all_close=len(x) < _MANY):
            place = begin + _best_place(level[begin:end], float(np.median(left)), float(np.median(right)))
            if place - begin >= (_FEWEST if jumps else _FEWEST_AT_END):
                jumps.append(place)
    return jumps


def _weighted_median(values: Float64, weights: Float64) -> float:
    """Return the value below and above which lies half of the weight, float64 [n] each, n > 0."""
    order = np.argsort(values, kind="stable")
    below = np.cumsum(weights[order])
    return float(values[order[np.searchsorted(below, below[-1] / 2)]])


def _medians(windows: Float64) -> Float64:
    """Return the median of each row's values that are not NaN, at least one: float64 [k] of float64 [k, n]."""
    ordered = np.sort(windows, axis=1)  # NaN comes last
    count = (~np.isnan(ordered)).sum(axis=1)
    rows = np.arange(len(ordered))
    return np.asarray((ordered[rows, (count - 1) // 2] + ordered[rows, count // 2]) / 2)


def _is_jump(before: Float64, after: Float64, least: float, *, all_close: bool) -> bool:
    """Return whether the clock jumps between two neighbouring stretches of moments.

    before, after: how far the clock is ahead at each moment of a stretch, in ns. Most of a stretch must agree; with
    `all_close`, or in a short stretch, all must. least: of the jump, in ns.
    """
    if min(len(before), len(after)) < _FEWEST_AT_END:
        return False
    levels = (float(np.median(before)), float(np.median(after)))
    apart = abs(levels[1] - levels[0])
    must_be_close = [stretch for stretch in (before, after) if all_close or len(stretch) < _FEWEST_UNLIKE]
    if any(np.ptp(stretch) > SMALLEST_JUMP_NS for stretch in must_be_close):
        return False
    return apart > least and all(
        float(np.sort(np.abs(stretch - level))[math.ceil(_AGREE_SHARE * (len(stretch) - 1))]) < _AGREE * apart
        for stretch, level in zip((before, after), levels, strict=True)
    )


def _best_place(level: Float64, before: float, after: float) -> int:
    """Return the place from which on moments are at the level `after`, such that they are least far from their levels.

    A moment that is far from both does not count.
    """
    apart = abs(after - before)
    gain = np.minimum(np.abs(level - before), apart) - np.minimum(np.abs(level - after), apart)
    return int(np.argmin(np.concatenate(([0.0], np.cumsum(gain)))))
