"""Which of the collectives are reductions of gradients: of a rank, and of a process group."""

from __future__ import annotations

import numpy as np

from tracekit.analysis.ddp.parts import BucketReductions, ManualReductions
from tracekit.model.collectives import MatchedGroup
from tracekit.model.events import ABSENT, Int64
from tracekit.model.run import Run
from tracekit.model.summary import RankSummary

__all__ = ["ranks_of_whole_group", "rows_of_reductions"]


def ranks_of_whole_group(run: Run, matched: MatchedGroup) -> list[RankSummary] | None:
    """Return the ranks of a group, several; None unless all of them were recorded."""
    members, present = run.groups[matched.group].ranks, set(matched.ranks.tolist())
    summaries = [summary for summary in run.ranks if summary.rank in present]
    return None if len(summaries) < 2 or len(summaries) < (len(members) or run.world_size or 0) else summaries


def rows_of_reductions(summary: RankSummary, reductions: BucketReductions | ManualReductions) -> Int64:
    """Return the position in the rank's `Collectives` of each of its reductions, int64 [n]; ABSENT if there is none."""
    collectives = summary.collectives
    if not len(collectives):
        return np.full(len(reductions), ABSENT, dtype=np.int64)
    row = np.minimum(np.searchsorted(collectives.launch_ns, reductions.launch_ns), len(collectives) - 1)
    same = (collectives.launch_ns[row] == reductions.launch_ns) & (collectives.end_ns[row] == reductions.end_ns)
    return np.where(same, row, ABSENT)
