"""Values by key, and their sums."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Return the values of each key, in their order. Keys are in the order in which they come first."""
    result: dict[K, list[V]] = {}
    for key, value in pairs:
        result.setdefault(key, []).append(value)
    return result


def summed(pairs: Iterable[tuple[K, int]]) -> Counter[K]:
    """Return the sum of the values of each key. Keys are in the order in which they come first."""
    result: Counter[K] = Counter()
    for key, value in pairs:
        result[key] += value
    return result
