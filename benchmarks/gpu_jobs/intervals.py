"""Plain arithmetic of intervals, written apart from tracekit so that the truth does not depend on it."""

from __future__ import annotations

from collections.abc import Iterable

Interval = tuple[int, int]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Return disjoint intervals, ascending, that cover the same points."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        elif end > start:
            merged.append((start, end))
    return merged


def minus(intervals: Iterable[Interval], others: Iterable[Interval]) -> list[Interval]:
    """Return what the intervals cover and the others do not."""
    rest: list[Interval] = []
    covers = union(others)
    for start, end in union(intervals):
        for other_start, other_end in covers:
            if other_end <= start or end <= other_start:
                continue
            if start < other_start:
                rest.append((start, other_start))
            start = other_end
        if start < end:
            rest.append((start, end))
    return rest


def clipped(intervals: Iterable[Interval], window: Interval) -> list[Interval]:
    """Return the parts of the intervals that lie in the window."""
    cut = ((max(start, window[0]), min(end, window[1])) for start, end in intervals)
    return [(start, end) for start, end in cut if start < end]


def length(intervals: Iterable[Interval]) -> int:
    """Return how many points the intervals cover."""
    return sum(end - start for start, end in union(intervals))
