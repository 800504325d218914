"""DDP buckets: which parameters travel together.

Comes in: a run. Goes out: the bucket map that the capture took from DDP itself, each module once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracekit import schema
from tracekit.model.run import Run

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Buckets", "buckets"]


@dataclass(frozen=True, kw_only=True)
class Buckets:
    """`bucket_map`: columns of schema.BUCKET_MAP; empty when no DDP module was recorded."""

    bucket_map: pd.DataFrame


def buckets(run: Run) -> Buckets:
    """The bucket map of the run: equal on all ranks, so the lowest rank that has it speaks for all."""
    modules = next((summary.ddp for summary in run.ranks if summary.ddp), ())
    rows = [
        {
            "module": module.module,
            "index": bucket.index,
            "size_bytes": bucket.size_bytes,
            "dtype": bucket.dtype,
            "parameters": list(bucket.parameters),
        }
        for module in modules
        for bucket in module.buckets
    ]
    return Buckets(bucket_map=schema.BUCKET_MAP.frame(rows))
