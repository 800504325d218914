"""Where a clock jumps: several moments before and after agree on levels that are far apart.

Many moments on each side of a jump tell it from moments that are late. A clock that jumps again soon has few moments
between two jumps. They show these jumps only if the clock is steady between them, and if lateness cannot explain them.

Ranks leave a collective together, up to some microseconds. Where processes share a GPU they take turns, and leave at
times that are apart by a part of the transfer. Who comes first changes now and then, and stays so for a while. So jumps
that are shorter than the transfers show nothing if many moments are far from all levels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tracekit.model.events import Float64, Int64

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

_FEWEST_CLOSE_TOGETHER = ((3, 2), (2, 3))  # moments between two jumps, and jumps: two may be late by the same time
_CLOSEST_LEVELS_NS = 50_000.0  # a rank may leave a few collectives in a row so late
_ON_LEVELS_SHARE = 0.9  # of the moments of a clock that jumps again soon
_NOT_LATE_PERCENTILE = 25

_SCATTER_PERCENTILE = 90  # of how far moments are from their levels
_JUMP_TO_SCATTER = 4.0

__all__ = ["SMALLEST_JUMP_NS", "STEEPEST", "Lateness", "find_jumps"]


class Lateness(NamedTuple):
    """By how much a rank may have been late at each moment, and by how much those may that it is compared with.

    In ns, int64 [n] each. `transfer_ns` is how long the last one to enter stayed.
    """

    rank_ns: Int64
    others_ns: Int64
    transfer_ns: Int64

    def rows(self, rows: Int64) -> Lateness:
        """Return what is known of some of the moments, given as places in any order."""
        return Lateness(*(values_ns[rows] for values_ns in self))


def find_jumps(x: Float64, y: Float64, lateness: Callable[[], Lateness] | None = None) -> list[int]:
    """Return the first moment after each jump of `y`, float64 [n], over ascending times `x`, float64 [n].

    Where the jump lies between two moments is not known. Jumps close together are found only if `lateness` is known.
    With it, jumps are found only if one of them is longer than most transfers, or than the scatter around the levels.
    """
    if len(x) < 2 * _FEWEST_AT_END:
        return []
    lag = max(1, len(x) // 8)  # short, so that most pairs do not straddle a jump
    elapsed = np.maximum(x[lag:] - x[:-lag], 1.0)
    slope = _weighted_median((y[lag:] - y[:-lag]) / elapsed, elapsed)  # moments close together tell little of it
    level = y - min(max(slope, -STEEPEST), STEEPEST) * x
    change = np.abs(np.diff(level))
    least = max(_JUMP_TO_NOISE * float(np.median(change)), SMALLEST_JUMP_NS)
    apart = _jumps_apart(level, least)
    if lateness is None:
        return apart
    jumps = max(apart, _jumps_close_together(level, max(least, _CLOSEST_LEVELS_NS), lateness), key=len)
    return jumps if jumps and _stand_out(level, jumps, lateness().transfer_ns) else []


def _stand_out(level: Float64, jumps: list[int], transfer_ns: Int64) -> bool:
    """Return whether one of the jumps is longer than most transfers, or than the scatter of moments around the levels.

    `level` is as in `_jumps_apart`, in ns, float64 [n], and `transfer_ns` as in `Lateness`, int64 [n]. `jumps` has the
    first moment after each jump, at least one.
    """
    parts = np.split(level, jumps)
    ahead_ns = [float(np.median(part)) for part in parts]
    largest_ns = float(np.abs(np.diff(ahead_ns)).max())
    off_ns = np.abs(level - np.repeat(ahead_ns, [len(part) for part in parts]))
    scatter_ns = float(np.percentile(off_ns, _SCATTER_PERCENTILE))
    return largest_ns > min(float(np.median(transfer_ns)), _JUMP_TO_SCATTER * scatter_ns)


def _jumps_apart(level: Float64, least: float) -> list[int]:
    """Return the first moment after each jump of more than `least`, in ns, that has many moments on both sides.

    `level` is how far the clock is ahead at each moment, without its drift, in ns, float64 [n].
    """
    change = np.abs(np.diff(level))
    candidates = np.flatnonzero(change > least / 2) + 1
    candidates = candidates[(candidates >= _FEWEST_AT_END) & (candidates <= len(level) - _FEWEST_AT_END)]
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
    for cluster, end in zip(clusters, [*(int(following[0]) for following in clusters[1:]), len(level)], strict=True):
        begin = jumps[-1] if jumps else 0
        left = level[max(begin, cluster[0] - _NEIGHBOURS) : cluster[0]]
        right = level[cluster[-1] : min(end, cluster[-1] + _NEIGHBOURS)]
        if _is_jump(left, right, least, all_close=len(level) < _MANY):
            place = begin + _best_place(level[begin:end], float(np.median(left)), float(np.median(right)))
            if place - begin >= (_FEWEST if jumps else _FEWEST_AT_END):
                jumps.append(place)
    return jumps


def _jumps_close_together(level: Float64, least: float, lateness: Callable[[], Lateness]) -> list[int]:
    """Return the first moment after each jump of more than `least`, in ns, of a clock that soon jumps again.

    Return none if it jumps once only, or if many moments are on no level. `level` is as in `_jumps_apart`.
    """
    begin = np.concatenate(([0], np.flatnonzero(np.abs(np.diff(level)) > least) + 1))
    end = np.append(begin[1:], len(level))
    if len(begin) < 3:
        return []
    highest, lowest = np.maximum.reduceat(level, begin), np.minimum.reduceat(level, begin)
    ahead, is_level = (highest + lowest) / 2, highest - lowest <= least
    for fewest_moments, fewest_jumps in _FEWEST_CLOSE_TOGETHER:
        is_long = is_level & (end - begin >= fewest_moments)
        if (end - begin)[is_long].sum() < _ON_LEVELS_SHARE * len(level):
            continue
        levels = _Levels(begin[is_long], end[is_long], ahead[is_long])
        if len(levels.changes(least)) >= fewest_jumps and _certain_jumps(levels, least, lateness()) >= fewest_jumps:
            # Any change of level is a jump of a clock that is known to jump, and at the ends fewer moments show one.
            is_long[[0, -1]] |= is_level[[0, -1]]
            levels = _Levels(begin[is_long], end[is_long], ahead[is_long])
            return [levels.jump(level, place) for place in levels.changes(least)]
    return []


class _Levels(NamedTuple):
    """How far a clock is `ahead`, in ns, float64 [m], from moments `begin` to before moments `end`, int64 [m] each."""

    begin: Int64
    end: Int64
    ahead: Float64

    def changes(self, least: float) -> list[int]:
        """Return the places of levels that the next level is more than `least` ns off."""
        places: list[int] = np.flatnonzero(np.abs(np.diff(self.ahead)) > least).tolist()
        return places

    def jump(self, level: Float64, place: int) -> int:
        """Return the first moment after the jump from a level to the next one."""
        begin = int(self.begin[place])
        before, behind = self.ahead[place : place + 2].tolist()
        return begin + _best_place(level[begin : self.end[place + 1]], before, behind)


def _certain_jumps(levels: _Levels, least: float, most_late: Lateness) -> int:
    """Return how many changes of level by more than `least`, in ns, lateness cannot explain.

    A rank that is late for a while is late at all moments of the level that seems later. So it is a jump if some of
    these can be late by less than half of it. Instead the others may be late at the level that seems earlier.
    """
    count = 0
    for place in levels.changes(least):
        change = levels.ahead[place + 1] - levels.ahead[place]
        later, earlier = (place + 1, place) if change > 0 else (place, place + 1)
        late_ns = (
            most_late.rank_ns[levels.begin[later] : levels.end[later]],
            most_late.others_ns[levels.begin[earlier] : levels.end[earlier]],
        )
        explained_ns = max(float(np.percentile(of_side_ns, _NOT_LATE_PERCENTILE)) for of_side_ns in late_ns)
        count += bool(abs(change) > 2 * explained_ns)
    return count


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
