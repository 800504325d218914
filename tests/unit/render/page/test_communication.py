"""Spreads of skews, bandwidth against size, and pairs of ranks, for the HTML report."""

from __future__ import annotations

from benchmarks.simulated import Cluster
from tracekit.api import analyze
from tracekit.explain.communication.collectives import times_of_groups
from tracekit.model.run import Run
from tracekit.render.json_result import result_dict
from tracekit.render.page.charts import message_pairs, skews_and_bandwidths


def chain(ranks: int) -> Run:
    """Return two steps in which every rank sends its successor 1000 bytes, which take 50 ns."""
    cluster = Cluster(ranks)
    for _ in cluster.steps(2):
        for rank in range(ranks - 1):
            cluster.work(rank, compute=100)
            cluster.message(rank, rank + 1, transfer=50, size_bytes=1_000)
    return cluster.run()


def two_ranks(late_ns: list[int]) -> Run:
    """Return a run of one all-reduce a step, to which rank 1 comes that much later."""
    cluster = Cluster(2)
    for number in cluster.steps(len(late_ns)):
        cluster.work(0, compute=10_000)
        cluster.work(1, compute=10_000 + late_ns[number])
        cluster.collective((0, 1), transfer=1_000 * (1 + number), size_bytes=1 << 20)
    return cluster.run()


def test_every_instance_is_in_one_bin_of_the_histogram() -> None:
    run = two_ranks([0, 500, 3_000, 90_000, 90_000] * 7)

    (skew,), _ = skews_and_bandwidths(times_of_groups(run), result_dict(analyze(run, only="collectives")))

    assert skew["quantiles_ns"] == [0, 0, 500, 3_000, 90_000, 90_000, 90_000]
    assert skew["edges_ns"][:2] == [0, 1_000]
    assert skew["edges_ns"][-1] == 90_000
    assert len(skew["edges_ns"]) == len(skew["counts"]) + 1
    assert (skew["counts"][0], skew["counts"][-1], sum(skew["counts"])) == (14, 14, 35)
    assert skew["skew_ns"] == skew["last_rank"] == skew["step"] == []


def test_of_few_instances_each_has_the_rank_that_came_last() -> None:
    """GIVEN five all-reduces THEN each has its skew, its step and who came last; nobody where both come at once."""
    run = two_ranks([0, 500, -3_000, 90_000, 90_000])

    (skew,), _ = skews_and_bandwidths(times_of_groups(run), result_dict(analyze(run, only="collectives")))

    assert skew["skew_ns"] == [0, 500, 3_000, 90_000, 90_000]
    assert skew["last_rank"] == [None, 1, 0, 1, 1]
    assert skew["step"] == [0, 1, 2, 3, 4]
    assert skew["edges_ns"] == skew["counts"] == []


def test_pairs_count_what_the_result_counts() -> None:
    run = chain(4)
    rows = result_dict(analyze(run, only="breakdown"))["point_to_point"]

    pairs = message_pairs(run, 100)

    assert pairs is not None
    assert pairs["ranks_per_cell"] == 1
    assert list(zip(pairs["source"], pairs["destination"], pairs["count"], pairs["size_bytes"], strict=True)) == [
        (row["source"], row["destination"], row["joined"], row["size_bytes"]) for row in rows
    ]
    assert pairs["transfer_ns"] == [100] * 3
    assert pairs["mean_bps"] == [2e10] * 3


def test_too_many_pairs_are_counted_by_neighbours() -> None:
    pairs = message_pairs(chain(8), 5)

    assert pairs is not None
    assert pairs["ranks_per_cell"] == 4
    assert list(zip(pairs["source"], pairs["destination"], strict=True)) == [(0, 0), (0, 4), (4, 4)]
    assert sum(pairs["count"]) == 14
