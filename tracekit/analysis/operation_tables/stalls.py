"""Whether the outliers of a job are stalls that wander over its ranks, or stalls of one rank that come again.

An outlier is about one operation in one step (`outliers`). Those on ranks that are otherwise like their peers are
*stalls*. They *wander* if they hit several ranks in several steps, and no rank has most of them: then no rank is to
blame, but what interrupts all ranks now and then. They *recur* if one rank has most of them, in a quarter of the
steps or more.

Where forward and backward of the same microbatch are both longer on a rank, nothing stalled: the microbatch has more
work, such as longer sequences. If that holds for most outliers, *microbatches differ*.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tracekit.analysis.operation_tables.outliers import Outlier

__all__ = ["Pattern", "Stalls", "describe_stalls"]

Pattern = Literal["wandering", "recurring", "single", "microbatches"]
"""wandering: on several ranks, none of which has most of them. recurring: most on one rank, in many steps. single: few.
microbatches: no stalls, since microbatches differ in their work."""

_MOST = 0.6  # of the time beyond the usual
_MANY_STEPS = 0.25
_FEW = 3
_MOST_LONG = 0.5  # of the outliers


@dataclass(frozen=True, kw_only=True)
class Stalls:
    """The outliers of work, and of pauses, together.

    Attributes:
        count: how many operations.
        steps: in how many steps.
        ranks: on which ranks, those with the longest stalls first.
        beyond_ns: how long they last beyond the usual, in all.
        pattern: whether they wander.
        rank: the rank that has most of them, where they recur or are single.
    """

    count: int
    steps: int
    ranks: tuple[int, ...]
    beyond_ns: int
    pattern: Pattern
    rank: int | None


def describe_stalls(outliers: Sequence[Outlier], steps: int) -> Stalls | None:
    """Return the stalls among the outliers of so many steps; None without any."""
    stalls = [outlier for outlier in outliers if not outlier.waits_on_others]
    if not stalls:
        return None
    beyond_ns: Counter[int] = Counter()
    for stall in stalls:
        beyond_ns[stall.rank] += stall.duration_ns - stall.usual_ns
    ranks = tuple(sorted(beyond_ns, key=lambda rank: (-beyond_ns[rank], rank)))
    total_ns, first = sum(beyond_ns.values()), ranks[0]
    has_most = beyond_ns[first] >= _MOST * total_ns
    steps_of_first = {stall.step for stall in stalls if stall.rank == first}
    pattern: Pattern = "single"
    if sum(stall.is_of_long_microbatch for stall in stalls) > _MOST_LONG * len(stalls):
        pattern = "microbatches"
    elif has_most and len(steps_of_first) >= max(_MANY_STEPS * steps, _FEW):
        pattern = "recurring"
    elif not has_most and len({stall.step for stall in stalls}) > 1:
        pattern = "wandering"
    return Stalls(
        count=len(stalls),
        steps=len({stall.step for stall in stalls}),
        ranks=ranks,
        beyond_ns=total_ns,
        pattern=pattern,
        rank=first if has_most else None,
    )
