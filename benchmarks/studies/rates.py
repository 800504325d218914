"""How often something was true, and how well that is known."""

from __future__ import annotations

import math
from collections.abc import Iterable

_Z = 1.959964  # of 95 %


def wilson(count: int, total: int) -> tuple[float, float]:
    """Return the 95 % interval of a rate: Wilson, Journal of the American Statistical Association 22 (1927)."""
    if not total:
        return 0.0, 1.0
    share, spread = count / total, _Z * _Z / total
    middle = (share + spread / 2) / (1 + spread)
    half = _Z * math.sqrt(share * (1 - share) / total + spread / (4 * total)) / (1 + spread)
    return max(middle - half, 0.0), min(middle + half, 1.0)


def rate(scores: Iterable[bool]) -> str:
    """Return how many are true, of how many, with the 95 % interval."""
    each = list(scores)
    low, high = wilson(sum(each), len(each))
    share = sum(each) / max(len(each), 1)
    return f"{sum(each)} of {len(each)} ({share:.1%}; {low:.1%} to {high:.1%})"
