"""How uncertain the median or the mean of correlated values is: the circular block bootstrap.

Values that follow each other are resampled in blocks, so that resamples are correlated as the values are (Politis and
Romano, "A circular block-resampling procedure for stationary data", 1992). A block has about n^(1/3) values (Hall,
Horowitz and Jing, Biometrika 82, 1995).

A median of few resampled values is one of these few, and its spread says little. So each resampled value is moved by a
random amount, and their spread is kept as it was (Silverman and Young, "The bootstrap: to smooth or not to smooth?",
Biometrika 74, 1987).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tracekit.model.events import Float64

__all__ = ["block_length", "bootstrap_medians", "variance_of_mean", "widening"]

_AT_ONCE = 1 << 20  # resampled values, which bounds the memory


def block_length(count: int) -> int:
    """Return how many of `count` values a block has."""
    return max(round(math.cbrt(count)), 1)


def widening(count: int) -> float:
    """Return by how much to multiply the spread of resamples of `count` values, at least 2.

    Resamples of n values in blocks of l vary too little, their means by (1 - l/n) of the variance.
    """
    return math.sqrt(count / (count - block_length(count)))


def bootstrap_medians(values: Float64, replicates: int, rng: np.random.Generator) -> Float64:
    """Return the medians of so many resamples, float64 [replicates], of at least one value, float64 [n], in order."""
    count, length, bandwidth = len(values), block_length(len(values)), _bandwidth(values)
    blocks, middle = -(-count // length), float(np.median(values))
    at_once = max(_AT_ONCE // count, 1)
    medians = np.empty(replicates)
    for first in range(0, replicates, at_once):
        here = medians[first : first + at_once]
        starts = rng.integers(0, count, size=(len(here), blocks, 1))
        places = (starts + np.arange(length)).reshape(len(here), -1)[:, :count] % count
        moved = values[places] - middle
        moved += bandwidth.moves * rng.standard_normal(moved.shape)
        here[:] = middle + np.median(moved, axis=1) * bandwidth.shrinks
    return medians


class _Bandwidth(NamedTuple):
    """How far values are moved, as a standard deviation, and the factor that restores their spread."""

    moves: float
    shrinks: float


def _bandwidth(values: Float64) -> _Bandwidth:
    """Return Silverman's rule of thumb ("Density Estimation", 1986, 3.31), which few far values do not change."""
    if len(values) < 2:
        return _Bandwidth(0.0, 1.0)
    first, last = np.quantile(values, [0.25, 0.75])
    spread = min(float(values.std(ddof=1)), float(last - first) / 1.34)
    share = 0.9 * len(values) ** -0.2
    return _Bandwidth(share * spread, 1 / math.sqrt(1 + share**2))


def variance_of_mean(values: Float64) -> float:
    """Return the variance of the mean of correlated values, float64 [n], at least 2, in order.

    It is what resampling circular blocks would give, without drawing any.
    """
    count, length = len(values), block_length(len(values))
    sums = np.concatenate(([0.0], np.cumsum(np.concatenate((values, values[: length - 1])))))
    block_means = (sums[length:] - sums[:-length]) / length
    variance = float(np.mean((block_means - values.mean()) ** 2)) * length / count
    return variance * widening(count) ** 2
