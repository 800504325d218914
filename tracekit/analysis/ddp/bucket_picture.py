"""One backward pass of DDP as an example: a typical step of the rank with the most exposed reductions."""

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
    """One reduction, in nanoseconds from the step's start; and how much of it is exposed."""

    module: str
    index: int
    ready_ns: int
    start_ns: int
    end_ns: int
    exposed_ns: int


@dataclass(frozen=True, kw_only=True)
class BucketPicture:
    """The reductions of one step.

    Attributes:
        last_gradient_ns: when the last gradient came, from the step's start.
        bars: in order of start.
    """

    rank: int
    step: int
    last_gradient_ns: int
    bars: tuple[BucketBar, ...]


def bucket_picture(times: Sequence[dict[str, Any]]) -> BucketPicture | None:
    """Return the step whose exposed time is closest to the median over the steps of its rank.

    `times`: rows of the table BUCKETS.
    """
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
