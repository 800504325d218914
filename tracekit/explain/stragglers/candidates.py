"""What may be named for the delays of a run, and how long others wait for it: a rank, a slow link, several slow ranks.

A rank is a candidate by the delays that are attributed to it (`delay_attribution`), and ranks that stand out are
candidates by how much longer they work than their peers (`slow_ranks`). `certainty` grades them all. Beside it stands
how often a rank comes last to collectives, and for how long others wait for it there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tracekit.explain.stragglers.arrivals import Arrivals
from tracekit.explain.stragglers.certainty import Evidence, Grading, LastArrivals
from tracekit.explain.stragglers.delay_attribution import CausedDelays
from tracekit.explain.stragglers.slow_ranks import WorkTimes
from tracekit.explain.stragglers.slow_transfers import SlowNetworkLink
from tracekit.findings.finding import Certainty
from tracekit.model.communication import KINDS
from tracekit.model.events import ABSENT, Int64
from tracekit.model.intervals import Intervals
from tracekit.model.run import Run
from tracekit.stats.uncertainty import leave_one_out_medians

_LARGEST = 2  # ranks to which most is attributed: no other can be the one to name
_OUTSIDERS = 0.1  # of a machine or process group, and of the other ranks: as many may be unlike the rest
_ORDER: dict[Certainty | None, int] = {"sure": 2, "likely": 1, None: 0}


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A rank, ranks or a slow link that may be named.

    Attributes:
        indexes: of the ranks in the run's ranks, or of the link in the slow links.
        is_link: whether it is a link.
        by_work: whether the delay is how much longer the ranks work, and not what is attributed to them.
        evidence: what it caused in each step beyond what the others did.
        certainty: how sure it is that it delays the others; None if that is not even likely.
        significance_ns: the delay that would be sure.
    """

    indexes: tuple[int, ...]
    is_link: bool = False
    by_work: bool = False
    evidence: Evidence
    certainty: Certainty | None = None
    significance_ns: float = 0.0


def candidates(
    charges: CausedDelays,
    trained: Sequence[int],
    work: WorkTimes | None,
    grading: Grading,
    *,
    first: int,
    clock_ns: int,
    last_arrivals: Sequence[LastArrivals],
    less_loaded: Mapping[int, Sequence[int]],
) -> list[Candidate]:
    """Return what may be named, with its grade. first: how many of the first steps do not count.

    last_arrivals: of each of the run's ranks. less_loaded: by the index of a rank whose experts have most tokens, those
    of ranks that have fewer for it: how much less they work is no noise.
    """
    ranks_ns = charges.ranks_ns[trained].T[first:]
    beyond_ns = ranks_ns - leave_one_out_medians(ranks_ns, np.ones_like(ranks_ns, dtype=np.bool_))
    found: list[tuple[tuple[int, ...], bool, bool, Evidence]] = []
    by_size = np.lexsort((-beyond_ns.mean(axis=0), -np.median(beyond_ns, axis=0)))
    for column in by_size[:_LARGEST].tolist():
        rank_index = trained[column]
        evidence = Evidence(
            series_ns=beyond_ns[:, column],
            slow_ns=beyond_ns[:, [column]],
            peers_ns=_noise_beside(work, rank_index, beyond_ns, column, first, less_loaded.get(rank_index, ())),
            clock_ns=clock_ns,
            last_arrivals=last_arrivals[rank_index] if len(beyond_ns) == 1 else None,
        )
        found.append(((rank_index,), False, False, evidence))
    nothing_ns = np.zeros((len(beyond_ns), 0), dtype=np.int64)
    for link_index, series_ns in enumerate(charges.links_ns[:, first:]):
        evidence = Evidence(series_ns=series_ns, slow_ns=series_ns[:, None], peers_ns=nothing_ns, clock_ns=clock_ns)
        found.append(((link_index,), True, False, evidence))
    if work is not None and len(beyond_ns) > 1:
        found += [(indexes, False, True, _of_work(work, indexes, first)) for indexes in work.standing_out(first)]
    return [
        Candidate(
            indexes=indexes,
            is_link=is_link,
            by_work=by_work,
            evidence=evidence,
            certainty=grading.grade(evidence),
            significance_ns=grading.threshold_ns(evidence),
        )
        for indexes, is_link, by_work, evidence in found
    ]


def _noise_beside(
    work: WorkTimes | None, rank_index: int, beyond_ns: Int64, column: int, first: int, less_loaded: Sequence[int]
) -> Int64:
    """Return by how much the ranks beside one exceed their peers: in how long they work, if they have peers.

    beyond_ns: int64 [n, r], what is attributed to each rank beyond the others. The noise of that is small: most steps
    have one last rank. Of one step or of two ranks there is nothing else.
    """
    if work is not None and rank_index in work.rank_indexes and len(beyond_ns) > 1:
        only = work.mask((rank_index,))
        peers = ~only & work.is_compared(only)
        alike = peers & ~work.mask(less_loaded)
        peers = alike if alike.any() else peers
        if peers.any():
            return work.beyond_peers(work.own_ns, only)[first:][:, peers]
    if beyond_ns.shape[1] == 2:
        return np.zeros((len(beyond_ns), 0), dtype=np.int64)
    return np.delete(beyond_ns, column, axis=1)


def _of_work(work: WorkTimes, indexes: tuple[int, ...], first: int) -> Evidence:
    """Return by how much longer ranks work than their peers, and by how much these differ among themselves."""
    slow = work.mask(indexes)
    beyond_ns = work.beyond_peers(work.own_ns, slow)[first:]
    of_slow_ns, peers = beyond_ns[:, slow], ~slow & work.is_compared(slow)
    return Evidence(
        series_ns=np.rint(np.median(of_slow_ns, axis=1)).astype(np.int64),
        slow_ns=of_slow_ns,
        peers_ns=beyond_ns[:, peers],
        outsiders=_OUTSIDERS if indexes in work.named_sets else 0.0,
    )


def first_to_name(found: Sequence[Candidate], links: Sequence[SlowNetworkLink]) -> Candidate:
    """Return the surest candidate, and of those the one that causes the most delay.

    A link that may be slower by nature comes after all that may be named. Of one rank's two measures the delay
    attributed to it counts, if that is as sure.
    """

    def key(c: Candidate) -> tuple[object, ...]:
        by_nature = c.is_link and links[c.indexes[0]].may_be_slower_by_nature
        return (
            c.certainty is not None,
            not by_nature,
            _ORDER[c.certainty],
            c.evidence.size_ns,
            float(np.mean(c.evidence.series_ns)),  # so that the numbers of ranks hardly ever matter
            -c.significance_ns,
            c.is_link,
            len(c.indexes),
            -c.indexes[0],
        )

    best = max(found, key=key)
    same = [c for c in found if (c.indexes, c.is_link, c.certainty) == (best.indexes, best.is_link, best.certainty)]
    return min(same, key=lambda c: c.by_work)


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
        mean_ns: how long each of the others does in a step: no longer than it communicates and does not compute.
    """

    rank: int
    mean_ns: int
    longest: LongestWait


def count_last_arrivals(run: Run, arrivals: Arrivals, steps: Sequence[int]) -> list[LastArrivals]:
    """Return how often each rank came last to a collective of these steps.

    Collectives that do not block lie in one segment: what makes a rank late to one makes it late to all.
    """
    counted, result = np.array(steps, dtype=np.int64), []
    for rank_index, (summary, which) in enumerate(zip(run.ranks, arrivals.instance_of, strict=True)):
        rows = np.flatnonzero((which != ABSENT) & np.isin(summary.collectives.step, counted))
        last = arrivals.instances.last_arrival[which[rows]] == rank_index
        released_ns, members = summary.collectives.released_ns[rows], arrivals.instances.members[which[rows]]
        share = float(np.mean(1 / members)) if len(rows) else 1.0
        result.append(LastArrivals(len(np.unique(released_ns[last])), len(np.unique(released_ns)), share))
    return result


def waits_for(run: Run, arrivals: Arrivals, rank_index: int, steps: Sequence[int]) -> WaitsForRank | None:
    """Return how long others wait for the rank with this index in these steps; None if they never do."""
    instances, waits, total_ns = arrivals.instances, [], 0
    for summary, which, waited_ns in zip(run.ranks, arrivals.instance_of, arrivals.waited_ns, strict=True):
        counted = (which != ABSENT) & np.isin(summary.collectives.step, np.array(steps, dtype=np.int64))
        rows = np.flatnonzero(counted)
        rows = rows[instances.last_arrival[which[rows]] == rank_index]
        if len(rows):
            row = int(rows[np.argmax(waited_ns[rows])])
            collectives = summary.collectives
            kind, step = KINDS[collectives.kind[row]], int(collectives.step[row])
            waits.append(LongestWait(summary.rank, kind, step, int(waited_ns[row])))
            # Of several at a time each instant is waited once, and only while nothing is computed.
            waited = Intervals.union_of(collectives.start_ns[rows], collectives.start_ns[rows] + waited_ns[rows])
            total_ns += min(waited.len_ns, sum(part.exposed_comm_ns for part in summary.steps if part.step in steps))
    longest = max(waits, key=lambda wait: wait.wait_ns, default=None)
    if longest is None or longest.wait_ns <= 0:
        return None
    others = sum(summary.is_measured for summary in run.ranks) - 1
    return WaitsForRank(rank=run.ranks[rank_index].rank, mean_ns=total_ns // (others * len(steps)), longest=longest)
