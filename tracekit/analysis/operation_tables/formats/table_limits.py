"""Is a table of operations within the limits? Each is checked before anything of that size is made."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tracekit.analysis.operation_tables.formats.numbers import LONGEST_NS
from tracekit.analysis.operation_tables.formats.places import begins
from tracekit.analysis.operation_tables.operations import Operations
from tracekit.errors import InputError
from tracekit.limits import limits
from tracekit.model.events import Int64

__all__ = ["HIGHEST_NUMBER", "require_limits", "require_sizes", "require_within"]

HIGHEST_NUMBER = 2**31 - 1
"""Of a rank, a stage, a chunk or a replica."""
_COUNTED = {
    "table_bytes": "bytes of text",
    "table_operations": "operations",
    "rank_operations": "operations of one rank in one step",
    "table_ranks": "ranks",
    "table_stages": "stages",
}


def require_within(path: Path | str, name: str, count: int) -> None:
    """Raise InputError if a file has more of something than its limit, a field of `Limits`, allows."""
    if count > getattr(limits(), name):
        raise InputError(
            f"{path}: over {getattr(limits(), name):,} {_COUNTED[name]} ({limits().named(name)})",
            hint=f"give fewer steps or ranks, or a larger --limit {name}=N",
        )


def require_limits(operations: Operations, path: str) -> None:
    """Raise InputError if the operations are more than a replay can do, or last longer than int64 can hold."""
    require_sizes(path, operations.rank, operations.step, operations.stage)
    if not len(operations):
        return
    order = np.argsort(operations.step, kind="stable")
    first = begins(operations.step[order])
    spans_ns = np.maximum.reduceat(operations.end_ns[order], first).astype(np.float64)
    spans_ns -= np.minimum.reduceat(operations.start_ns[order], first)
    if spans_ns.sum() > LONGEST_NS:
        what = f"its steps take longer than {LONGEST_NS / 1e9:.0e} s together"
        raise InputError(f"{path}: {what}", hint="check the unit of its times")


def require_sizes(path: str, rank: Int64, step: Int64, stage: Int64) -> None:
    """Raise InputError if operations, int64 [n] each, are too many: in all, of a rank in a step, or their ranks."""
    require_within(path, "table_operations", len(rank))
    require_within(path, "table_ranks", len(np.unique(rank)))
    require_within(path, "table_stages", len(np.unique(stage)))
    order = np.lexsort((rank, step))
    first = begins(step[order], rank[order])
    require_within(path, "rank_operations", int(np.diff(first, append=len(order)).max(initial=0)))
