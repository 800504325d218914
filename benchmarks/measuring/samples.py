"""Arithmetic on costs that were measured in the same rounds.

Comes in: a cost a round. Goes out: ratios and differences, one a round: what disturbs the machine in one round disturbs
both sides of its ratio.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

__all__ = ["Spread", "doublings", "one_more", "ratios", "spread"]


@dataclass(frozen=True, kw_only=True)
class Spread:
    """The median of some values, the least and the greatest of them, and how many there are."""

    median: float
    low: float
    high: float
    count: int


def spread(values: Sequence[float]) -> Spread:
    return Spread(median=statistics.median(values), low=min(values), high=max(values), count=len(values))


def ratios(over: Sequence[float], under: Sequence[float]) -> list[float]:
    """`over` / `under` of each round; rounds in which one of them was lost in the noise (not above 0) are left out."""
    return [above / below for above, below in zip(over, under, strict=True) if above > 0 and below > 0]


def one_more(one: Sequence[float], many: Sequence[float], count: int) -> list[float]:
    """What one more item costs in each round, by what one and `count` of them cost, starting left out."""
    return [(whole - first) / (count - 1) for first, whole in zip(one, many, strict=True)]


def doublings(costs: Mapping[int, Sequence[float]], empty: Sequence[float]) -> dict[int, list[float]]:
    """By size: how many times as much the size costs as half of it, `empty` taken off both, in each round.

    Rounds that say nothing are left out, as by `ratios`. Raises ValueError when a size is not twice the one before it.
    """
    own = {size: [cost - base for cost, base in zip(of_size, empty, strict=True)] for size, of_size in costs.items()}
    for half, size in pairwise(sorted(own)):
        if size != 2 * half:
            raise ValueError(f"{size} is not twice {half}")
    return {size: ratios(own[size], own[half]) for half, size in pairwise(sorted(own))}
