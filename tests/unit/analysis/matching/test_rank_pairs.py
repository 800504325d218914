"""Which ranks send messages to which, how much, and how fast."""

from __future__ import annotations

from tests.unit.analysis.simulated import Cluster
from tracekit.analysis.matching.message_times import RankPairs, rank_pairs


def rows(pairs: RankPairs) -> list[tuple[int, ...]]:
    columns = (pairs.source, pairs.destination, pairs.count, pairs.size_bytes, pairs.transfer_ns)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def chain(ranks: int) -> Cluster:
    """Return two steps in which every rank sends its successor 1000 bytes, which take 50 ns."""
    cluster = Cluster(ranks)
    for _ in cluster.steps(2):
        for rank in range(ranks - 1):
            cluster.work(rank, compute=100)
            cluster.message(rank, rank + 1, transfer=50, size_bytes=1_000)
    return cluster


def test_messages_are_added_up_by_sender_and_receiver() -> None:
    pairs = rank_pairs(chain(3).run())

    assert rows(pairs) == [(0, 1, 2, 2_000, 100), (1, 2, 2, 2_000, 100)]
    assert pairs.transfer_bytes.tolist() == [2_000, 2_000]


def test_the_two_directions_are_two_pairs() -> None:
    cluster = Cluster(2)
    for _ in cluster.steps(1):
        cluster.work(0, compute=10)
        cluster.message(0, 1, size_bytes=10)
        cluster.message(1, 0, size_bytes=30)

    assert [row[:4] for row in rows(rank_pairs(cluster.run()))] == [(0, 1, 1, 10), (1, 0, 1, 30)]


def test_neighbouring_ranks_count_together() -> None:
    """GIVEN four ranks in a chain WHEN two share a cell THEN one message a step stays within each cell."""
    pairs = rank_pairs(chain(4).run(), ranks_per_cell=2)

    assert [row[:4] for row in rows(pairs)] == [(0, 0, 2, 2_000), (0, 2, 2, 2_000), (2, 2, 2, 2_000)]


def test_a_run_without_messages_has_no_pairs() -> None:
    assert len(rank_pairs(Cluster(2).run())) == 0
