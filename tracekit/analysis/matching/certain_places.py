"""Where the members of an incomplete row belong in the complete one: only places that are certain."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tracekit.model.events import ABSENT, Int64

__all__ = ["certain_places"]


def certain_places(count: int, places: int, fits: Callable[[int, int], bool]) -> Int64:
    """Return int64 [count]: the only place that each of `count` members can have among the `places`, or ABSENT.

    Members keep their order, and no two share a place. `fits(member, place)` says whether a member may stand at a
    place. All members are laid as far left and as far right as possible. Any other layout lies between these two, so a
    place is certain if both agree. All are ABSENT if there is no layout.
    """
    first = _leftmost(count, places, fits)
    last = _leftmost(count, places, lambda member, place: fits(count - 1 - member, places - 1 - place))
    if first is None or last is None:
        return np.full(count, ABSENT, dtype=np.int64)
    return np.where(first == places - 1 - last[::-1], first, ABSENT)


def _leftmost(count: int, places: int, fits: Callable[[int, int], bool]) -> Int64 | None:
    """Return the leftmost layout, int64 [count]; None if there is none."""
    result, place = [], 0
    for member in range(count):
        while place < places and not fits(member, place):
            place += 1
        if place == places:
            return None
        result.append(place)
        place += 1
    return np.array(result, dtype=np.int64)
