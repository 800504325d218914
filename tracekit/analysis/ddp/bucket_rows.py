"""Which of a rank's collectives its bucket reductions are."""

from __future__ import annotations

import numpy as np

from tracekit.analysis.ddp.parts import BUCKET_REDUCTIONS
from tracekit.model.events import ABSENT, Int64
from tracekit.model.summary import RankSummary

__all__ = ["rows_of_buckets"]


def rows_of_buckets(summary: RankSummary) -> Int64:
    """Return the position in the rank's `Collectives` of each bucket reduction, int64 [n]; ABSENT if there is none."""
    collectives, runs = summary.collectives, summary[BUCKET_REDUCTIONS]
    if not len(collectives):
        return np.full(len(runs), ABSENT, dtype=np.int64)
    row = np.minimum(np.searchsorted(collectives.launch_ns, runs.launch_ns), len(collectives) - 1)
    same = (collectives.launch_ns[row] == runs.launch_ns) & (collectives.end_ns[row] == runs.end_ns)
    return np.where(same, row, ABSENT)
