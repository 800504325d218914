"""Whole numbers in proportion to weights, with an exact sum."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracekit.model.events import Int64


def apportion(total: int | Int64, weights: NDArray[Any]) -> Int64:
    """Return int64 [..., n], in proportion to float64 [..., n] weights, whose sums are exactly `total`, at least 0.

    The method of the largest remainder (Hamilton): each gets the whole part of its share, and those with the largest
    fractions get one more. Of equal fractions the first do. Without any weight the first gets all.

    total: int64 [...].
    """
    if not weights.size:
        return np.zeros(weights.shape, dtype=np.int64)
    whole = weights.sum(axis=-1, keepdims=True)
    is_nothing = whole <= 0
    if is_nothing.any():
        weights = np.where(is_nothing, np.eye(1, weights.shape[-1])[0], weights)
        whole = np.where(is_nothing, 1.0, whole)
    totals = np.asarray(total, dtype=np.int64)[..., None]
    shares = totals * (weights / whole)
    result: Int64 = np.floor(shares).astype(np.int64)
    missing = totals - result.sum(axis=-1, keepdims=True)
    order = np.argsort(result - shares, axis=-1, kind="stable")
    result += np.argsort(order, axis=-1, kind="stable") < missing
    if (missing < 0).any():  # a share of a large total may be rounded up beyond it
        shrinks = np.take_along_axis(result > 0, order, axis=-1)
        from_last = np.cumsum(shrinks[..., ::-1], axis=-1)[..., ::-1]
        less = np.zeros_like(result)
        np.put_along_axis(less, order, (shrinks & (from_last <= -missing)).astype(np.int64), axis=-1)
        result -= less
    return result
