"""Which of some optional columns each of n rows has: rows that have the same ones are written alike, many at a time.

Comes in: a mask a column. Goes out: `Forms`, the sets of columns that occur, and the rows of each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tracekit.model.events import Bool, Int32, Int64

__all__ = ["Forms"]

_AT_ONCE = 8  # columns that are told apart in one pass, a bit each


class Forms:
    """present: of each column bool [n], or None: all rows have it."""

    def __init__(self, present: Sequence[Bool | None], rows: int) -> None:
        masks = {
            column: mask.view(np.uint8) for column, mask in enumerate(present) if mask is not None and not mask.all()
        }
        always = [column for column in range(len(present)) if column not in masks]
        sometimes = list(masks)
        sets: list[list[int]] = [[]]
        form = np.zeros(rows, dtype=np.uint32)
        for first in range(0, len(sometimes), _AT_ONCE):
            some = sometimes[first : first + _AT_ONCE]
            code = np.zeros(rows, dtype=np.uint8)
            for bit, column in enumerate(some):
                code |= masks[column] << bit
            form = form.astype(np.uint32) << np.uint32(_AT_ONCE) | code
            occurs = np.flatnonzero(np.bincount(form))  # of all combinations few do
            sets = [
                [*sets[number >> _AT_ONCE], *(column for bit, column in enumerate(some) if number >> bit & 1)]
                for number in occurs.tolist()
            ]
            renumbered = np.zeros(int(occurs[-1]) + 1, dtype=np.uint32)
            renumbered[occurs] = np.arange(len(occurs))
            form = renumbered[form]
        self._sets = [sorted([*always, *columns]) for columns in sets]
        self._form = form.astype(np.min_scalar_type(len(sets)))  # a narrow type is sorted by counting

    def of(self, rows: Int32 | Int64) -> Iterator[tuple[Int64, list[int]]]:
        """Of those in `rows`, integers [k]: the positions of each that have the same columns, and these."""
        form = self._form[rows]
        order = np.argsort(form, kind="stable")
        edges = np.cumsum(np.bincount(form, minlength=len(self._sets)))
        for positions, columns in zip(np.split(order, edges[:-1]), self._sets, strict=True):
            if len(positions):
                yield positions, columns
