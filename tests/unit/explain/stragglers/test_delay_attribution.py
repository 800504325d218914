"""Delays of ranks are limited by what the others of their groups can have waited for them. Times in ns.

What is attributed to whom is tested by `test_stragglers.py`.
"""

from __future__ import annotations

import numpy as np

from benchmarks.simulated import Cluster
from tracekit.explain.stragglers.delay_attribution import CausedDelays, limited_by_waits

FIRST, SECOND = 300, 200


def delays(*ranks_ns: int) -> CausedDelays:
    """Return delays of ranks in one step, two thirds by compute and one by the host."""
    of_ranks = np.array(ranks_ns, dtype=np.int64)
    causes_ns = np.stack([of_ranks * 2 // 3, of_ranks * 0, of_ranks // 3, of_ranks * 0, of_ranks * 0], axis=1)
    return CausedDelays(ranks_ns=of_ranks[:, None], causes_ns=causes_ns, links_ns=np.zeros((0, 1), dtype=np.int64))


def two_late_ranks(*, apart: bool = False) -> Cluster:
    """Rank 0 is late to a reduction, then rank 1 to another; with `apart` ranks 2 and 3 have groups of their own."""
    cluster = Cluster(4)
    groups = [(0, 1), (2, 3)] if apart else [(0, 1, 2, 3)]
    for _ in cluster.steps(1):
        for late, by in ((0, FIRST), (1, SECOND)):
            for rank in range(4):
                cluster.work(rank, compute=100 + by * (rank == late))
            for group in groups:
                cluster.collective(group, transfer=10)
    return cluster


def limited(cluster: Cluster, *ranks_ns: int) -> list[int]:
    return limited_by_waits(delays(*ranks_ns), cluster.run(), [0]).ranks_ns[:, 0].tolist()


def test_the_same_delay_shown_twice_counts_once() -> None:
    """The others waited 500 at most, of it 200 for rank 1, which itself waited 300 for rank 0."""
    assert limited(two_late_ranks(), 2 * FIRST, SECOND, 0, 0) == [FIRST + SECOND, SECOND, 0, 0]
    assert limited(two_late_ranks(), 2 * FIRST, 0, 0, 0) == [FIRST, 0, 0, 0]


def test_a_rank_that_waits_as_long_as_the_others_is_charged_what_they_were_not() -> None:
    assert limited(two_late_ranks(), FIRST, SECOND, 0, 0) == [FIRST, SECOND, 0, 0]
    assert limited(two_late_ranks(), 0, 0, 50, 0) == [0, 0, 0, 0]


def test_causes_keep_their_shares() -> None:
    result = limited_by_waits(delays(2 * FIRST, 0, 0, 0), two_late_ranks().run(), [0])
    assert result.causes_ns[0].tolist() == [FIRST * 2 // 3, 0, FIRST // 3, 0, 0]
