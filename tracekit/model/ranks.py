"""Text for sets of ranks or steps."""

from __future__ import annotations

from collections.abc import Collection, Iterable

__all__ = ["format_ranges", "ranks_text"]

_SHOWN_RANGES = 8


def format_ranges(numbers: Iterable[int]) -> str:
    """Return `0-3,5` for the numbers 0, 1, 2, 3 and 5.

    Without numbers it is "none". After eight ranges it ends with "...".
    """
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    ranges = [str(first) if first == last else f"{first}-{last}" for first, last in runs[:_SHOWN_RANGES]]
    return ",".join(ranges) + (",..." if len(runs) > _SHOWN_RANGES else "") if runs else "none"


def ranks_text(ranks: Collection[int]) -> str:
    """Return `rank 3`, or `ranks 0-3,5` for several."""
    return f"rank{'s' * (len(ranks) != 1)} {format_ranges(ranks)}"
