"""Quantiles of Student's t distribution."""

from __future__ import annotations

import math

__all__ = ["student_deviations"]


def student_deviations(normal: float, degrees: float) -> float:
    """Return how many standard errors are as improbable as `normal` ones of a normal distribution.

    It is the quantile of Student's distribution; infinity for fewer than 2 degrees of freedom. The expansion is that of
    Abramowitz and Stegun, "Handbook of Mathematical Functions", 26.7.5. At 3 deviations it is 1 % low for 4 degrees,
    and better for more.
    """
    if degrees < 2:
        return math.inf
    z, n = normal, float(degrees)
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return sum(term / n**power for power, term in enumerate(terms))
