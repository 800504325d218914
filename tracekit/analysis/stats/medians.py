"""How sure a median is.

Comes in: values. Goes out: the standard error of their median, by their median absolute deviation, which a few values
far off do not move (Huber, "Robust Statistics", 1981).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["MAD_TO_SIGMA", "median_error"]

MAD_TO_SIGMA = 1.4826  # of a normal distribution
_OF_A_MEAN = 1.2533  # times that of a mean is the standard error of a median


def median_error(values: ArrayLike) -> float:
    """In the unit of the values, of which there is one at least."""
    numbers = np.asarray(values, dtype=np.float64)
    deviation = float(np.median(np.abs(numbers - np.median(numbers))))
    return _OF_A_MEAN * MAD_TO_SIGMA * deviation / math.sqrt(len(numbers))
