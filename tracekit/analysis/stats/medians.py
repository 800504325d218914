"""How precise a median is: its standard error, from the median absolute deviation.

A few values that are far off do not change it (Huber, "Robust Statistics", 1981).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["MAD_TO_SIGMA", "MEDIAN_TO_MEAN_ERROR", "median_error"]

MAD_TO_SIGMA = 1.4826  # for a normal distribution
MEDIAN_TO_MEAN_ERROR = 1.2533  # standard error of a median over that of a mean


def median_error(values: ArrayLike) -> float:
    """Return the standard error of the median of at least one value, in the unit of the values."""
    numbers = np.asarray(values, dtype=np.float64)
    deviation = float(np.median(np.abs(numbers - np.median(numbers))))
    return MEDIAN_TO_MEAN_ERROR * MAD_TO_SIGMA * deviation / math.sqrt(len(numbers))
