"""When operators ran that are in a file but cannot be read.

Without its operator a moment of a CPU rank seems idle. Other events either do not change how the time of a step is
divided, or it shows that they are missing: a kernel is launched, a collective has a number.
"""

from __future__ import annotations

import re

import numpy as np

from tracekit.model.events import Bool, Int64

__all__ = ["LostEvents", "is_operator", "text_is_operator"]

_OPERATORS = ("cpu_op", "Operator")  # the second of torch 1.8
_COLLECTIVE = re.compile(r"(?:gloo|mpi|ucc):")
_CATEGORY_IN_TEXT = re.compile(rb'"cat"\s*:\s*"(\w+)"')
_COLLECTIVE_IN_TEXT = re.compile(rb'"name"\s*:\s*"(?:gloo|mpi|ucc):')


def is_operator(category: str | None, name: str | None) -> bool:
    """Return whether an event is an operator, or a collective of a library that runs on CPUs."""
    return category in _OPERATORS or _COLLECTIVE.match(name or "") is not None


def text_is_operator(piece: bytes) -> bool:
    """Return whether the text of an event that cannot be read seems to be that of an operator."""
    match = _CATEGORY_IN_TEXT.search(piece)
    of_operator = match is not None and match[1].decode() in _OPERATORS
    return of_operator or _COLLECTIVE_IN_TEXT.search(piece) is not None


class LostEvents:
    """Collects operators that are lost: by the time at which they began or, if that is unknown, by their place."""

    def __init__(self) -> None:
        self._known_ns: list[int] = []
        self._rows: list[int] = []

    def began(self, at_ns: int) -> None:
        """Add one that began at a time, without the base time."""
        self._known_ns.append(at_ns)

    def before_row(self, row: int) -> None:
        """Add one that stands in front of a row, which may be the number of rows."""
        self._rows.append(row)

    def times(self, start_ns: Int64, inside: Bool) -> Int64:
        """Return between which times, without the base time, each lost operator began: int64 [k, 2].

        start_ns: of all rows, int64 [n]. inside: those that are not out of range, bool [n]. An event stands between
        those that began before and after it. So its time is between theirs.
        """
        known_ns = np.array(self._known_ns, dtype=np.int64)
        rows, kept = np.array(self._rows, dtype=np.int64), np.flatnonzero(inside)
        if not len(kept):
            return np.stack([known_ns, known_ns], axis=1)
        place = np.searchsorted(kept, rows)
        around = np.stack([np.maximum(place - 1, 0), np.minimum(place, len(kept) - 1)], axis=1)
        between_ns = np.sort(start_ns[kept[around]], axis=1)
        return np.concatenate((np.stack([known_ns, known_ns], axis=1), between_ns))
