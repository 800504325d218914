"""Which clocks agree throughout: they differ by an offset and a drift, and none of them jumps alone.

The moments of a group are cut into blocks. Of each rank the medians of the blocks are taken, less the line through
them. So single late moments do not count, and all ranks are compared at once.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from tracekit.analysis.clocks.jumps import SMALLEST_JUMP_NS
from tracekit.analysis.clocks.moments import FEWEST_MOMENTS, Moments
from tracekit.model.events import Float64, Int64

_BLOCKS = 16
_NOISE = 3.0  # times the change from moment to moment: what is within it shows no jump

__all__ = ["agreeing"]


def agreeing(moments: Moments) -> Int64:
    """Return int64 [k]: for each rank a number that it has in common with the ranks whose clocks agree with its own.

    A rank that lacks the moments of a whole block agrees with none. Nor do any if the moments are few or uneven.
    """
    result = np.arange(len(moments.ranks))
    if moments.count < FEWEST_MOMENTS or moments.uneven:
        return result
    apart_ns, since_ns = _apart(moments)
    from_line_ns = _from_line_ns(apart_ns, since_ns)
    close_ns = max(SMALLEST_JUMP_NS, _NOISE * _noise_ns(apart_ns))
    waiting = np.isfinite(from_line_ns).all(axis=1)
    while waiting.any():
        first = int(np.argmax(waiting))
        agree = waiting & (np.abs(from_line_ns - from_line_ns[first]).max(axis=1) <= close_ns)
        result[agree] = first
        waiting &= ~agree
    return result


def _apart(moments: Moments) -> tuple[Float64, Float64]:
    """Return the moments of each rank as times since the same moments of another rank, float64 [k, n], and when these
    are, float64 [n]. NaN stands for a missing moment.
    """
    most_present = np.argsort(-moments.there.sum(axis=1), kind="stable")
    first = most_present[np.argmax(moments.there[most_present], axis=0)]
    base_ns = moments.end_ns[first, np.arange(moments.count)]
    apart_ns = np.where(moments.there, (moments.end_ns - base_ns).astype(np.float64), np.nan)
    return apart_ns, (base_ns - base_ns[0]).astype(np.float64)


def _noise_ns(apart_ns: Float64) -> float:
    """Return by how much the difference of two ranks typically changes from moment to moment, without their drift."""
    change_ns = np.diff(apart_ns, axis=1)
    change_ns = change_ns[np.isfinite(change_ns).all(axis=1)][1:]  # the first one may be compared with itself
    if not len(change_ns):
        return 0.0
    return float(np.median(np.abs(change_ns - np.median(change_ns, axis=1, keepdims=True))))


def _from_line_ns(apart_ns: Float64, since_ns: Float64) -> Float64:
    """Return how far each block of a rank's moments is off the line through its blocks, float64 [k, blocks].

    What the times have in common is the same for all ranks. A block without moments of a rank makes all its blocks NaN.
    """
    count = len(since_ns)
    edges = np.linspace(0, count, min(_BLOCKS, count) + 1).astype(np.int64).tolist()
    blocks = list(pairwise(edges))
    medians = np.stack([_medians(apart_ns[:, begin:end]) for begin, end in blocks], axis=1)
    medians -= np.nan_to_num(medians[:, :1])  # clocks may be years apart
    line = np.stack([np.ones(len(blocks)), [since_ns[begin:end].mean() for begin, end in blocks]], axis=1)
    line[:, 1] -= line[:, 1].mean()
    line /= np.maximum(np.sqrt((line * line).sum(axis=0)), 1.0)
    return np.asarray(medians - (medians @ line) @ line.T)


def _medians(block: Float64) -> Float64:
    """Return the median of each row, float64 [k]; NaN for a row that is all NaN."""
    missing = np.isnan(block)
    if not missing.any():
        return np.asarray(np.median(block, axis=1))
    result = np.full(len(block), np.nan)
    some = ~missing.all(axis=1)
    result[some] = np.nanmedian(block[some], axis=1)
    return result
