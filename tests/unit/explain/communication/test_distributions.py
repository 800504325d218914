"""Spreads of skews and transfers, and how late ranks come to the collectives of each step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from benchmarks.simulated import Cluster
from tracekit.explain.communication.collectives import (
    collective_distributions,
    collective_times,
    lateness_by_step,
    times_of_groups,
)
from tracekit.model.run import ClockModel, Run
from tracekit.model.table import rows_of


def job(late_ns: list[list[int]], *, error: int = 0) -> Run:
    """Return a run of one all-reduce a step.

    late_ns: of each step, by how much each rank comes after 1000 ns of work.
    """
    cluster = Cluster(len(late_ns[0]), error=error)
    for number in cluster.steps(len(late_ns)):
        for rank, late in enumerate(late_ns[number]):
            cluster.work(rank, compute=1_000 + late)
        cluster.collective(range(len(late_ns[0])), transfer=100 + 10 * number)
    return cluster.run()


def test_skews_and_transfers_of_all_instances() -> None:
    (times,) = collective_distributions(times_of_groups(job([[0, 30], [50, 0], [0, 0]])))

    assert (times.kind, times.size_bytes, times.error_ns) == ("all_reduce", 64, 0)
    assert times.skew_ns.tolist() == [30, 50, 0]
    assert times.transfer_ns.tolist() == [100, 110, 120]


def test_a_row_of_the_table_has_the_median_and_the_maximum_of_its_spread() -> None:
    cluster = Cluster(4)
    for number in cluster.steps(5):
        for rank in range(4):
            cluster.work(rank, compute=1_000 + 7 * rank * number)
        cluster.collective((0, 1), size_bytes=64)
        cluster.collective((2, 3), size_bytes=128)
        cluster.collective(range(4), kind="all_gather", size_bytes=64, transfer=20 + number)
    run = cluster.run()

    spreads = {(t.group, t.kind, t.size_bytes): t for t in collective_distributions(times_of_groups(run))}

    rows = rows_of(collective_times(run), "table")
    assert len(rows) == len(spreads) == 3
    for row in rows:
        times = spreads[row["group"], row["kind"], row["size_bytes"]]
        assert len(times.skew_ns) == row["count"]
        assert int(times.skew_ns.max()) == row["skew_max_ns"]
        assert round(float(np.median(times.transfer_ns))) == row["transfer_p50_ns"]


def test_lateness_is_the_time_after_the_first_rank() -> None:
    assert lateness_by_step(times_of_groups(job([[0, 30, 10], [50, 0, 0]]))) == {
        (0, 0): 0,
        (1, 0): 30,
        (2, 0): 10,
        (0, 1): 50,
        (1, 1): 0,
        (2, 1): 0,
    }


def test_lateness_within_the_error_of_the_clocks_is_none() -> None:
    """GIVEN clocks that are off by up to 20 ns each THEN 30 ns may be nothing, and 50 ns are not."""
    lateness_ns = lateness_by_step(times_of_groups(job([[0, 30], [0, 50]], error=20)))

    assert lateness_ns == {(0, 0): 0, (1, 0): 0, (0, 1): 0, (1, 1): 50}


def test_nothing_is_said_of_clocks_that_cannot_be_compared() -> None:
    run = job([[0, 30]])
    apart = tuple(replace(summary, host=f"node{summary.rank}") for summary in run.ranks)
    unknown = tuple(ClockModel(rank=summary.rank, method="none") for summary in run.ranks)

    assert lateness_by_step(times_of_groups(replace(run, ranks=apart, clocks=unknown))) == {}


def test_a_rank_that_leaves_early_is_not_taken_for_the_last() -> None:
    """GIVEN a gather, whose ranks but the root leave before it comes THEN only the root is late."""
    cluster = Cluster(3)
    for _ in cluster.steps(1):
        for rank, work in enumerate((1_000, 1_200, 9_000)):
            cluster.work(rank, compute=work)
        cluster.collective((0, 1, 2), kind="gather", root=2)

    assert lateness_by_step(times_of_groups(cluster.run())) == {(0, 0): 0, (1, 0): 200, (2, 0): 8_000}
