"""Which kernels and operators take the most time over all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracekit.analysis.kernels import tables
from tracekit.analysis.kernels.tables import KERNEL_TIMES, OPERATOR_TIMES, OperationTimes, longest_of
from tracekit.analysis.table import Frame
from tracekit.findings.finding import Finding
from tracekit.model.events import Float64, Int64
from tracekit.model.run import Run

__all__ = ["MOST_SHOWN", "Kernels", "kernels"]

MOST_SHOWN = 50
"""How many there are at most, by each of total, self and exposed time of all ranks."""


@dataclass(frozen=True, kw_only=True)
class Kernels:
    """Kernels and operators, the most total time first.

    Attributes:
        kernels: rows of tables.KERNELS; none for ranks that compute on CPUs.
        operators: rows of tables.OPERATORS, over some steps of each rank (`per_rank.MOST_OPERATORS`).
    """

    kernels: Frame = Frame(tables.KERNELS)
    operators: Frame = Frame(tables.OPERATORS)
    findings: tuple[Finding, ...] = ()


def kernels(run: Run) -> Kernels:
    """Return the kernels and operators of all ranks."""
    operators = _rows([(summary.rank, summary[OPERATOR_TIMES]) for summary in run.ranks])
    return Kernels(
        kernels=_rows([(summary.rank, summary[KERNEL_TIMES]) for summary in run.ranks]),
        operators=[{name: value for name, value in row.items() if name != "kind"} for row in operators],
    )


def _rows(by_rank: Sequence[tuple[int, OperationTimes]]) -> list[dict[str, object]]:
    """Return a row for each name and kind."""
    by_rank = [(rank, times) for rank, times in by_rank if times.steps and len(times.sums)]
    if not by_rank:
        return []
    places: dict[tuple[str, str], int] = {}
    which = np.array(
        [
            places.setdefault(pair, len(places))
            for _, times in by_rank
            for pair in zip(times.sums.name.tolist(), times.sums.kind.tolist(), strict=True)
        ],
        dtype=np.int64,
    )
    lengths = [len(times.sums) for _, times in by_rank]
    rank = np.repeat([rank for rank, _ in by_rank], lengths)
    steps = np.repeat([times.steps for _, times in by_rank], lengths)

    def per_step(column: str) -> Float64:
        sums: Int64 = np.concatenate([getattr(times.sums, column) for _, times in by_rank])
        return np.asarray(sums / steps)

    count, total_ns, self_ns, exposed_ns = map(per_step, ("count", "total_ns", "self_ns", "exposed_ns"))
    ranks = np.bincount(which)
    sums = [np.bincount(which, weights=column) for column in (count, total_ns, self_ns, exposed_ns)]
    worst_first = np.lexsort((rank, -total_ns, which))
    worst = worst_first[np.searchsorted(which[worst_first], np.arange(len(places)))]
    names = list(places)
    return [
        {
            "name": names[i][0],
            "kind": names[i][1],
            "count": sums[0][i] / ranks[i],
            "total_ns": sums[1][i] / ranks[i],
            "self_ns": sums[2][i] / ranks[i],
            "exposed_ns": sums[3][i] / ranks[i],
            "ranks": ranks[i],
            "worst_rank": rank[worst[i]],
            "worst_total_ns": total_ns[worst[i]],
        }
        for i in longest_of(sums[1:], MOST_SHOWN).tolist()
    ]
