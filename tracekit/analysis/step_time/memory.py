"""Memory of each rank: parameters, gradients, optimizer state, peak.

Comes in: a run. Goes out: what the capture of each rank counted as its last window closed.
"""

from __future__ import annotations

from dataclasses import dataclass

from tracekit import schema
from tracekit.model.run import Run

__all__ = ["Memory", "memory"]


@dataclass(frozen=True, kw_only=True)
class Memory:
    """`ranks`: columns of schema.MEMORY; a rank of which nothing is known has no row."""

    ranks: schema.Frame = schema.Frame(schema.MEMORY)


def memory(run: Run) -> Memory:
    rows = [
        {
            "rank": summary.rank,
            "parameter_bytes": summary.memory.parameter_bytes,
            "gradient_bytes": summary.memory.gradient_bytes,
            "optimizer_bytes": summary.memory.optimizer_bytes,
            "peak_bytes": summary.memory.peak_bytes,
        }
        for summary in run.ranks
        if summary.memory is not None
    ]
    return Memory(ranks=rows)
