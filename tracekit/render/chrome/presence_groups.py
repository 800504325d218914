"""Group rows by which optional columns they have, so that many rows are written with one template."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tracekit.model.events import Bool, Int32, Int64

__all__ = ["PresenceGroups"]

_COLUMNS_A_PASS = 8  # one bit each


class PresenceGroups:
    """Groups of n rows that have the same columns.

    present: a mask for each column, bool [n]; None: all rows have the column.
    """

    def __init__(self, present: Sequence[Bool | None], rows: int) -> None:
        masks = {
            column: mask.view(np.uint8) for column, mask in enumerate(present) if mask is not None and not mask.all()
        }
        always = [column for column in range(len(present)) if column not in masks]
        optional = list(masks)
        sets: list[list[int]] = [[]]
        group = np.zeros(rows, dtype=np.uint32)
        for first in range(0, len(optional), _COLUMNS_A_PASS):
            columns = optional[first : first + _COLUMNS_A_PASS]
            code = np.zeros(rows, dtype=np.uint8)
            for bit, column in enumerate(columns):
                code |= masks[column] << bit
            group = group.astype(np.uint32) << np.uint32(_COLUMNS_A_PASS) | code
            occurring = np.flatnonzero(np.bincount(group))  # few of all combinations occur
            sets = [
                [*sets[number >> _COLUMNS_A_PASS], *(column for bit, column in enumerate(columns) if number >> bit & 1)]
                for number in occurring.tolist()
            ]
            renumbered = np.zeros(int(occurring[-1]) + 1, dtype=np.uint32)
            renumbered[occurring] = np.arange(len(occurring))
            group = renumbered[group]
        self._sets = [sorted([*always, *columns]) for columns in sets]
        self._group = group.astype(np.min_scalar_type(len(sets)))  # numpy sorts a narrow type by counting

    def of(self, rows: Int32 | Int64) -> Iterator[tuple[Int64, list[int]]]:
        """Yield for each group among `rows`, integers [k], the positions of its rows in `rows`, and its columns."""
        group = self._group[rows]
        order = np.argsort(group, kind="stable")
        edges = np.cumsum(np.bincount(group, minlength=len(self._sets)))
        for positions, columns in zip(np.split(order, edges[:-1]), self._sets, strict=True):
            if len(positions):
                yield positions, columns
