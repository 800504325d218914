"""The chain over all ranks that bounds a step, on simulated runs whose chain is known."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.simulated import Cluster
from tracekit.explain.diagnosis.critical_path import critical_path
from tracekit.explain.stragglers.arrivals import arrivals_of
from tracekit.model.run import Run
from tracekit.model.table import records


def chain(run: Run) -> dict[tuple[int, str, str], int]:
    path = critical_path(run, arrivals_of(run, run.common_steps()))
    return {(row["rank"], row["kind"], row["name"]): row["total_ns"] for row in records(path.parts)}


def test_the_chain_goes_through_the_last_rank_to_arrive() -> None:
    """GIVEN rank 1 last to the reduction, and rank 0 busy for longer after it THEN the chain has both."""
    cluster = Cluster(2)
    for _ in cluster.steps(1):
        cluster.work(0, compute=100)
        cluster.work(1, data=50, compute=300, host=20)
        cluster.collective((0, 1), transfer=10)
        cluster.work(0, compute=70)
    assert chain(cluster.run()) == {
        (1, "compute", "all_reduce"): 300,
        (0, "compute", "end of step"): 70,
        (1, "data", "all_reduce"): 50,
        (1, "other", "all_reduce"): 20,
        (1, "communication", "all_reduce"): 10,
    }


def test_the_chain_follows_a_message_to_its_sender() -> None:
    cluster = Cluster(2)
    for _ in cluster.steps(2):
        cluster.work(0, compute=200)
        cluster.message(0, 1, transfer=30)
        cluster.work(1, compute=100)
        cluster.message(1, 0, transfer=30)
    assert chain(cluster.run()) == {
        (0, "compute", "send"): 400,
        (1, "compute", "send"): 200,
        (0, "communication", "send"): 60,
        (1, "communication", "send"): 60,
    }


def test_the_chain_stays_on_a_rank_that_was_busy_when_its_message_came() -> None:
    """GIVEN a receive posted at 20, a message sent at 50 that came at 80, and a rank that computes until 200."""
    cluster = Cluster(2)
    for _ in cluster.steps(1):
        cluster.work(0, compute=50)
        cluster.work(1, compute=200)
        cluster.message(0, 1, transfer=30, posted_before=180)
        cluster.work(1, compute=100)
    assert chain(cluster.run()) == {(1, "compute", "end of step"): 100, (1, "compute", "send"): 200}


def test_of_a_message_that_came_before_its_receiver_waited_only_the_rest_holds_up_the_step() -> None:
    """GIVEN a message from 50 to 80, for which rank 1 waits from 70 on THEN rank 1 bounds the step, and 10 of it."""
    cluster = Cluster(2)
    for _ in cluster.steps(1):
        cluster.work(0, compute=50)
        cluster.work(1, compute=70)
        cluster.message(0, 1, transfer=30, posted_before=60)
        cluster.work(1, compute=100)
    assert chain(cluster.run()) == {
        (1, "compute", "end of step"): 100,
        (1, "compute", "send"): 70,
        (1, "communication", "send"): 10,
    }


@given(
    durations=st.lists(st.integers(1, 500), min_size=12, max_size=12),
    offsets=st.lists(st.integers(-(10**12), 10**12), min_size=3, max_size=3),
)
def test_the_chain_is_as_long_as_a_step_that_all_ranks_begin_together(durations: list[int], offsets: list[int]) -> None:
    """GIVEN any clock offsets."""
    cluster = Cluster(3, offsets=offsets)
    for _ in cluster.steps(2):
        for k in range(3):
            for rank in range(3):
                cluster.work(rank, compute=durations[3 * k + rank], host=durations[9 + rank])
            cluster.collective(range(3) if k == 2 else (k, k + 1), transfer=7)
    run = cluster.run()
    assert sum(chain(run).values()) == sum(step.step_ns for step in run.ranks[0].steps)


@pytest.mark.parametrize(("error", "is_known"), [(4, True), (6, False)])
def test_no_chain_leads_over_ranks_whose_clocks_may_be_off_by_much_of_a_step(error: int, is_known: bool) -> None:
    """GIVEN steps of 220 ns, and two clocks that may be off each other by 8 or by 12 ns, a twentieth being 11."""
    cluster = Cluster(2, error=error)
    for _ in cluster.steps(2):
        cluster.work(0, compute=200)
        cluster.work(1, compute=100)
        cluster.collective((0, 1), transfer=20)
    assert bool(chain(cluster.run())) == is_known
