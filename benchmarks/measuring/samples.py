"""Ratios and differences of costs that were measured in the same rounds.

They are computed round by round: a disturbance of the machine then affects both sides of a ratio.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, kw_only=True)
class Spread:
    """The median, minimum, maximum and number of some values."""

    median: float
    low: float
    high: float
    count: int


def spread(values: Sequence[float]) -> Spread:
    return Spread(median=statistics.median(values), low=min(values), high=max(values), count=len(values))


def ratios(over: Sequence[float], under: Sequence[float]) -> list[float]:
    """Return `over` / `under` of each round, without the rounds in which one of them is not above 0: that is noise."""
    return [above / below for above, below in zip(over, under, strict=True) if above > 0 and below > 0]


def one_more(one: Sequence[float], many: Sequence[float], count: int) -> list[float]:
    """Return the cost of one more item in each round, from the costs of one item and of `count` items.

    The cost of starting cancels out.
    """
    return [(whole - first) / (count - 1) for first, whole in zip(one, many, strict=True)]


def doublings(costs: Mapping[int, Sequence[float]], empty: Sequence[float]) -> dict[int, list[float]]:
    """Return by size, for each round, its cost divided by the cost of half that size; `empty` is taken off both first.

    Noisy rounds are left out, as in `ratios`. Raises ValueError when a size is not twice the one before it.
    """
    own = {size: [cost - base for cost, base in zip(of_size, empty, strict=True)] for size, of_size in costs.items()}
    for half, size in pairwise(sorted(own)):
        if size != 2 * half:
            raise ValueError(f"{size} is not twice {half}")
    return {size: ratios(own[size], own[half]) for half, size in pairwise(sorted(own))}
