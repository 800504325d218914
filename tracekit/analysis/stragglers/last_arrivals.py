"""How often a rank comes last to collectives, and for how long others wait for it there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracekit.analysis.stragglers.arrivals.arrivals import Arrivals
from tracekit.analysis.stragglers.certainty import LastArrivals
from tracekit.model.communication import KINDS
from tracekit.model.events import ABSENT
from tracekit.model.run import Run

__all__ = ["LongestWait", "WaitsForRank", "count_last_arrivals", "waits_for"]


@dataclass(frozen=True)
class LongestWait:
    """The longest time that a rank spends in a collective until the last one comes.

    Attributes:
        rank: the one that waits.
        kind: of the collective.
        step: of the collective.
    """

    rank: int
    kind: str
    step: int
    wait_ns: int


@dataclass(frozen=True)
class WaitsForRank:
    """How long others wait for a rank.

    Attributes:
        rank: the one that they wait for.
        mean_ns: how long each of the others does in a step.
    """

    rank: int
    mean_ns: int
    longest: LongestWait


def count_last_arrivals(run: Run, arrivals: Arrivals, steps: Sequence[int]) -> list[LastArrivals]:
    """Return how often each rank came last to a collective of these steps.

    Collectives that do not block lie in one segment: what makes a rank late to one makes it late to all.
    """
    counted, result = np.array(steps, dtype=np.int64), []
    for place, (summary, which) in enumerate(zip(run.ranks, arrivals.instance_of, strict=True)):
        rows = np.flatnonzero((which != ABSENT) & np.isin(summary.collectives.step, counted))
        last = arrivals.instances.last_arrival[which[rows]] == place
        released_ns, members = summary.collectives.released_ns[rows], arrivals.instances.members[which[rows]]
        share = float(np.mean(1 / members)) if len(rows) else 1.0
        result.append(LastArrivals(len(np.unique(released_ns[last])), len(np.unique(released_ns)), share))
    return result


def waits_for(run: Run, arrivals: Arrivals, place: int, steps: Sequence[int]) -> WaitsForRank | None:
    """Return how long others wait for the rank at `place` in these steps; None if they never do."""
    instances, waits, total_ns = arrivals.instances, [], 0
    for summary, which, waited_ns in zip(run.ranks, arrivals.instance_of, arrivals.waited_ns, strict=True):
        counted = (which != ABSENT) & np.isin(summary.collectives.step, np.array(steps, dtype=np.int64))
        rows = np.flatnonzero(counted)
        rows = rows[instances.last_arrival[which[rows]] == place]
        if len(rows):
            row = int(rows[np.argmax(waited_ns[rows])])
            collectives = summary.collectives
            kind, step = KINDS[collectives.kind[row]], int(collectives.step[row])
            waits.append(LongestWait(summary.rank, kind, step, int(waited_ns[row])))
            total_ns += int(waited_ns[rows].sum())
    longest = max(waits, key=lambda wait: wait.wait_ns, default=None)
    if longest is None or longest.wait_ns <= 0:
        return None
    others = sum(summary.is_measured for summary in run.ranks) - 1
    return WaitsForRank(rank=run.ranks[place].rank, mean_ns=total_ns // (others * len(steps)), longest=longest)
