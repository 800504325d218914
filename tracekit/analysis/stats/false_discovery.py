"""Which of many differences to point at, when chance alone makes some of them look large."""

from __future__ import annotations

import numpy as np

from tracekit.model.events import Float64

__all__ = ["adjusted_p_values"]


def adjusted_p_values(p_values: Float64) -> Float64:
    """Return the adjusted p-values, float64 [m], of p-values, float64 [m].

    Of the differences whose adjusted p-value is at most q, a share of at most q is expected to be chance (Benjamini and
    Hochberg, Journal of the Royal Statistical Society B 57, 1995).
    """
    count = len(p_values)
    order = np.argsort(p_values, kind="stable")
    scaled = p_values[order] * count / np.arange(1, count + 1)
    adjusted = np.empty(count)
    adjusted[order] = np.minimum(np.minimum.accumulate(scaled[::-1])[::-1], 1.0)
    return adjusted
