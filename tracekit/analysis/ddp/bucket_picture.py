"""One backward pass of DDP to look at: a typical step of the rank on which most of the reductions is exposed.

Comes in: the times of all reductions. Goes out: those of one step, with when its gradients began and ended.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tracekit.analysis.ddp.parts import WHOLE

__all__ = ["BucketBar", "BucketPicture", "bucket_picture"]


@dataclass(frozen=True, kw_only=True)
class BucketBar:
    """Nanoseconds from the step's start: ready, start and end of a reduction; and how much of it is exposed."""

    module: str
    index: int
    ready_ns: int
    start_ns: int
    end_ns: int
    exposed_ns: int


@dataclass(frozen=True, kw_only=True)
class BucketPicture:
    """`bars` in order of start; the last gradient came at `last_gradient_ns` from the step's start."""

    rank: int
    step: int
    last_gradient_ns: int
    bars: tuple[BucketBar, ...]


def bucket_picture(times: Sequence[dict[str, Any]]) -> BucketPicture | None:
    """`times`: rows of the table BUCKETS. The step whose exposed time is closest to the median of its rank's steps."""
    added_ns: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for row in times:
        if row["index"] != WHOLE:
            added_ns[row["rank"]][row["step"]] += row["added_ns"]
    if not added_ns:
        return None
    medians_ns = {rank: statistics.median(steps.values()) for rank, steps in added_ns.items()}
    rank = max(medians_ns, key=lambda each: (medians_ns[each], -each))
    step = min(added_ns[rank], key=lambda each: (abs(added_ns[rank][each] - medians_ns[rank]), each))
    rows = sorted(
        (row for row in times if (row["rank"], row["step"]) == (rank, step) and row["index"] != WHOLE),
        key=lambda row: (row["start_ns"], row["index"]),
    )
    names = ("module", "index", "ready_ns", "start_ns", "end_ns", "exposed_ns")
    return BucketPicture(
        rank=rank,
        step=step,
        last_gradient_ns=max(row["ready_ns"] for row in rows),
        bars=tuple(BucketBar(**{name: row[name] for name in names}) for row in rows),
    )
