"""Which of a rank's collectives its reductions of gradients are."""

from __future__ import annotations

import numpy as np

from tracekit.analysis.ddp.parts import BucketReductions, ManualReductions
from tracekit.model.events import ABSENT, Int64
from tracekit.model.summary import RankSummary

__all__ = ["rows_of_reductions"]


def rows_of_reductions(summary: RankSummary, reductions: BucketReductions | ManualReductions) -> Int64:
    """Return the position in the rank's `Collectives` of each of its reductions, int64 [n]; ABSENT if there is none."""
    collectives = summary.collectives
    if not len(collectives):
        return np.full(len(reductions), ABSENT, dtype=np.int64)
    row = np.minimum(np.searchsorted(collectives.launch_ns, reductions.launch_ns), len(collectives) - 1)
    same = (collectives.launch_ns[row] == reductions.launch_ns) & (collectives.end_ns[row] == reductions.end_ns)
    return np.where(same, row, ABSENT)
