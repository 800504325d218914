"""Memory of each rank: parameters, gradients, optimizer state, peak.

The capture counts them as its last window closes.
"""

from __future__ import annotations

from dataclasses import dataclass

from tracekit.analysis.step_time import tables
from tracekit.analysis.step_time.tables import MEMORY_USE
from tracekit.analysis.table import Frame
from tracekit.findings.finding import Finding
from tracekit.model.run import Run

__all__ = ["Memory", "memory"]


@dataclass(frozen=True, kw_only=True)
class Memory:
    """The memory of all ranks.

    Attributes:
        ranks: rows of tables.MEMORY; a rank of which nothing is known has no row.
    """

    ranks: Frame = Frame(tables.MEMORY)
    findings: tuple[Finding, ...] = ()


def memory(run: Run) -> Memory:
    rows = [
        tables.MEMORY.row(use, rank=summary.rank) for summary in run.ranks if (use := summary[MEMORY_USE]) is not None
    ]
    return Memory(ranks=rows)
