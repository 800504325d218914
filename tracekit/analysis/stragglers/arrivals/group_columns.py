"""Columns of the collectives of one process group, instance by instance over its ranks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracekit.model.events import ABSENT, Bool, Int64
from tracekit.model.run import Run

__all__ = ["NEVER", "GroupColumns", "column_at"]

NEVER = np.iinfo(np.int64).min // 2
"""In times on the run's clock: absent."""


@dataclass(frozen=True, kw_only=True, eq=False)
class GroupColumns:
    """The m instances of a group with k ranks, as arrays [m, k]: an instance's ranks lie together in memory, which
    makes sorting them faster.

    Attributes:
        row: int64 [m, k], of each rank's `Collectives`, or -1.
        members: int64 [k], places in the run's ranks.
    """

    run: Run
    row: Int64
    members: Int64

    @property
    def known(self) -> Bool:
        return self.row >= 0

    def errors_ns(self) -> Int64:
        """Return by how much each rank's clock may be off, int64 [k]; 0 if that is not known."""
        return np.array([self.run.clocks[member].error_ns or 0 for member in self.members], dtype=np.int64)

    def column(self, name: str, *, on_run: bool = False) -> Int64:
        """Return a column of all ranks, int64 [m, k]. `on_run`: times on the run's clock, NEVER if absent."""
        rows = self.row.T
        result = np.full(rows.shape, NEVER if on_run else 0, dtype=np.int64)
        complete = bool((rows >= 0).all())
        for of_rank, of_row, member in zip(result, rows, self.members.tolist(), strict=True):
            here = slice(None) if complete else of_row >= 0
            # Taken first: a rank's collectives of other groups cost nothing.
            values = np.take(getattr(self.run.ranks[member].collectives, name), of_row[here])
            if on_run:
                values = np.where(values == ABSENT, NEVER, self.run.clocks[member].to_run(values))
            of_rank[here] = values
        return np.ascontiguousarray(result.T)


def column_at(run: Run, rank: Int64, row: Int64, name: str) -> Int64:
    """Return a column of each rank's collectives at its row, int64 [m]; -1 where the row is -1.

    rank: int64 [m], places in the run's ranks. row: int64 [m].
    """
    result = np.full(len(row), ABSENT, dtype=np.int64)
    known = np.flatnonzero(row != ABSENT)
    for member in np.unique(rank[known]).tolist():
        here = known[rank[known] == member]
        result[here] = getattr(run.ranks[member].collectives, name)[row[here]]
    return result
