"""Ranks that are slow together are found by their own time in steps, and named with their machine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.simulated import Cluster
from tracekit.explain.stragglers.slow_ranks import work_times
from tracekit.explain.stragglers.stragglers import counted_steps, stragglers
from tracekit.model.run import Run

STEPS = 5


def job(slow: tuple[int, ...], ranks: int = 8, **planted: int) -> Run:
    """Return a run in which all ranks reduce once a step, and the `slow` ones work longer before."""
    cluster = Cluster(ranks)
    for number in cluster.steps(STEPS):
        for rank in range(ranks):
            cluster.work(rank, compute=1000 + (3 * rank + number) % 5)
            if rank in slow:
                cluster.work(rank, **planted)
        cluster.collective(range(ranks), transfer=50)
    run = cluster.run()
    summaries = tuple(replace(summary, host=f"node{rank // 4}") for rank, summary in enumerate(run.ranks))
    return replace(run, ranks=summaries)


@pytest.mark.parametrize(
    ("planted", "cause"),
    [
        ({"compute": 300, "operations": 0}, "compute"),
        ({"compute": 300, "operations": 3}, "more_work"),
        ({"host": 300}, "host"),
        ({"data": 300}, "data"),
    ],
)
def test_a_slow_machine_is_named_with_its_ranks_and_the_cause(planted: dict[str, int], cause: str) -> None:
    result = stragglers(job((4, 5, 6, 7), **planted))
    verdict = result.verdict
    assert (verdict.rank, verdict.ranks, verdict.host, verdict.cause) == (None, (4, 5, 6, 7), "node1", cause)
    assert verdict.caused_delay_ns == pytest.approx(300, abs=5)
    (finding,) = result.findings
    assert (finding.rank, finding.evidence["host"], finding.evidence["ranks"]) == (None, "node1", [4, 5, 6, 7])


@pytest.mark.parametrize(("operations", "cause"), [(1, "compute"), (9, "compute"), (10, "more_work")])
def test_a_few_more_operations_that_take_very_long_are_no_more_work(operations: int, cause: str) -> None:
    """GIVEN a rank with more operations than the usual ten, which take 60 times as long as these."""
    verdict = stragglers(job((5,), compute=60_000, operations=operations)).verdict
    assert (verdict.rank, verdict.cause) == (5, cause)


def test_a_rank_with_no_more_operations_in_its_step_has_no_more_work() -> None:
    """GIVEN a rank that begins more operations before one collective, and fewer in the whole step."""
    cluster = Cluster(2)
    for _ in cluster.steps(STEPS):
        for operations in ((20, 30), (40, 10)):
            for rank in range(2):
                is_slow = rank == 1
                cluster.work(rank, compute=1000 + 10 * is_slow * operations[1], operations=operations[is_slow])
            cluster.collective(range(2), transfer=50)
    verdict = stragglers(cluster.run()).verdict
    assert (verdict.rank, verdict.cause) == (1, "compute")


def test_some_ranks_of_a_machine_are_named_without_it() -> None:
    verdict = stragglers(job((1, 2), compute=300, operations=0)).verdict
    assert (verdict.rank, verdict.ranks, verdict.host) == (None, (1, 2), None)


def test_one_slow_rank_is_named_alone() -> None:
    run = job((5,), compute=300, operations=0)
    work = work_times(run, counted_steps(run))
    assert work is not None
    assert work.standing_out(1)[0] == (5,)
    assert (stragglers(run).verdict.rank, stragglers(run).verdict.ranks) == (5, ())


def test_most_ranks_cannot_be_the_slow_ones() -> None:
    """GIVEN five of eight ranks that take longer THEN that is usual, and the others are fast."""
    assert stragglers(job((0, 1, 2, 3, 4), compute=300)).verdict.ranks == ()


@pytest.mark.parametrize("slow", [(1, 6), (0, 3)])
def test_two_ranks_anywhere_are_named_together(slow: tuple[int, int]) -> None:
    assert stragglers(job(slow, compute=300, operations=0)).verdict.ranks == slow


def test_two_of_four_ranks_are_named() -> None:
    verdict = stragglers(job((1, 3), ranks=4, compute=300, operations=0)).verdict
    assert (verdict.ranks, verdict.certainty) == ((1, 3), "sure")


def test_equal_ranks_are_not_named() -> None:
    verdict = stragglers(job(())).verdict
    assert (verdict.rank, verdict.ranks, verdict.cause) == (None, (), None)


def test_ranks_of_different_programs_are_not_compared() -> None:
    """GIVEN two groups that reduce in themselves and differ in what they do THEN neither is slow."""
    cluster = Cluster(8)
    for _ in cluster.steps(STEPS):
        for rank in range(8):
            cluster.work(rank, compute=1000 + 500 * (rank >= 4))
        for group, times in ((range(4), 2), (range(4, 8), 1)):
            for _ in range(times):
                cluster.collective(group, transfer=50)
    run = cluster.run()
    work = work_times(run, counted_steps(run))
    assert work is not None
    assert work.standing_out(1) == []


@pytest.mark.parametrize(
    ("late", "named"),
    [
        ({1: (5, 6, 7)}, (1, [5, 6, 7])),
        ({1: (5, 6, 7), 0: (2,)}, None),  # another is late, too
        ({1: (5, 6)}, None),  # may be an accident
    ],
)
@pytest.mark.parametrize("ranks", [2, 4])
def test_a_rank_that_is_late_in_some_steps_is_named_if_no_other_ever_is(
    ranks: int, late: dict[int, tuple[int, ...]], named: tuple[int, list[int]] | None
) -> None:
    cluster = Cluster(ranks)
    for number in cluster.steps(10):
        for rank in range(ranks):
            cluster.work(rank, compute=1000 + (3 * rank + number) % 5 + 300 * (number in late.get(rank, ())))
        cluster.collective(range(ranks), transfer=50)
    result = stragglers(cluster.run())
    found = [(f.rank, f.evidence["late_steps"]) for f in result.findings if f.id == "late-in-some-steps" and f.holds]
    assert found == ([] if named is None else [named])
    assert result.verdict.rank == (None if named is None else named[0])
