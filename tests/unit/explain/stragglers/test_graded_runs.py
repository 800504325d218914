"""Whole runs as users record them, with few steps and real noise: who is named, with which cause and grade."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.simulated import Cluster
from benchmarks.studies.certainty.cases import Case
from benchmarks.studies.certainty.programs import run_of
from tracekit.explain.stragglers.stragglers import stragglers
from tracekit.explain.stragglers.verdict import Verdict
from tracekit.model.run import Run


def verdict_on(**case: object) -> Verdict:
    fields: dict[str, object] = {"seed": 3, "strategy": "ddp", "ranks": 4, "steps": 3, "noise": 1.0} | case
    return stragglers(run_of(Case(**fields))).verdict  # type: ignore[arg-type]


def test_a_sleep_in_three_steps_whose_length_varies_is_named() -> None:
    """GIVEN a rank that sleeps 25, 24 and 14 % of the step beside peers that vary by 2 %, as was recorded."""
    cluster = Cluster(4)
    work = [[795, 694, 722], [813, 695, 681], [720, 690, 700], [718, 688, 768]]
    for step in cluster.steps(3):
        for rank in range(4):
            cluster.work(rank, compute=1000 * work[rank][step], operations=100)
        cluster.work(2, host=1000 * (240, 230, 140)[step])
        cluster.collective(range(4), transfer=1000)
    verdict = stragglers(cluster.run()).verdict
    assert (verdict.rank, verdict.cause, verdict.certainty) == (2, "host", "likely")


def test_a_rank_that_computes_all_the_time_is_no_late_host() -> None:
    """GIVEN a rank that is late by what its collectives do not see as compute, but its breakdown does."""
    cluster = Cluster(4)
    for _ in cluster.steps(5):
        for rank in range(4):
            cluster.work(rank, compute=1_000_000, host=400_000 * (rank == 2))
        cluster.collective(range(4), transfer=1000)
    run = cluster.run()
    steps = tuple(replace(step, compute_ns=1_400_000, idle_ns=0) for step in run.ranks[2].steps)
    ranks = (*run.ranks[:2], replace(run.ranks[2], steps=steps), run.ranks[3])
    assert (stragglers(run).verdict.rank, stragglers(run).verdict.cause) == (2, "host")
    verdict = stragglers(replace(run, ranks=ranks)).verdict
    assert (verdict.rank, verdict.cause, verdict.caused_delay_ns) == (2, "compute", 400_000)


def test_a_rank_that_is_slower_at_all_has_no_late_host() -> None:
    """GIVEN rank 1, which idles 500 us, its peer 300 us, and which computes 300 us longer: others use its processor."""
    cluster = Cluster(2)
    for _ in cluster.steps(5):
        cluster.work(0, compute=1_000_000)
        cluster.work(1, compute=1_000_000, host=600_000)
        cluster.collective(range(2), transfer=1000)
    run = cluster.run()
    times_ns = ((1_000_000, 300_000), (1_300_000, 500_000))
    ranks = tuple(
        replace(rank, steps=tuple(replace(step, compute_ns=compute, idle_ns=idle) for step in rank.steps))
        for rank, (compute, idle) in zip(run.ranks, times_ns, strict=True)
    )
    assert (stragglers(run).verdict.rank, stragglers(run).verdict.cause) == (1, "host")
    verdict = stragglers(replace(run, ranks=ranks)).verdict
    assert (verdict.rank, verdict.cause) == (1, "compute")


def test_a_peer_that_passes_a_collective_without_waiting_is_compared_since_then() -> None:
    """GIVEN steps of two collectives, to which rank 1 and rank 2 come last; rank 1 does not wait for the first one."""
    cluster = Cluster(3)
    for _ in cluster.steps(5):
        for late, host in ((1, 300_000), (2, 400_000)):
            for rank in range(3):
                cluster.work(rank, compute=1_000_000, host=host * (rank == late))
            cluster.collective(range(3), transfer=1000)
    run = cluster.run()
    released_ns = run.ranks[1].collectives.released_ns.copy()
    released_ns[1::2] = released_ns[::2]
    passing = replace(run.ranks[1], collectives=replace(run.ranks[1].collectives, released_ns=released_ns))
    by_rank = stragglers(replace(run, ranks=(run.ranks[0], passing, run.ranks[2]))).by_rank.set_index("rank")
    assert by_rank.loc[2, "caused_delay_ns"] == pytest.approx(400_000, abs=1000)


@pytest.mark.parametrize("planted", ["host", "between", "compute", "data", "more_work"])
def test_every_kind_of_delay_is_named_from_three_steps(planted: str) -> None:
    verdict = verdict_on(planted=planted, slow=(2,), delay=0.3)
    expected = "host" if planted == "between" else planted
    assert (verdict.rank, verdict.cause, verdict.certainty) == (2, expected, "sure")


@pytest.mark.parametrize(("ranks", "slow"), [(4, (1, 3)), (16, (4, 11)), (16, tuple(range(8)))])
def test_ranks_that_are_slow_together_are_named_as_a_set(ranks: int, slow: tuple[int, ...]) -> None:
    verdict = verdict_on(ranks=ranks, planted="compute", slow=slow, delay=0.3)
    assert (verdict.ranks, verdict.cause, verdict.certainty) == (slow, "compute", "sure")
    assert verdict.host == ("node0" if len(slow) == 8 else None)


def test_a_file_that_is_missing_makes_it_likely() -> None:
    verdict = verdict_on(ranks=8, planted="host", slow=(2,), delay=0.3, missing=(5,))
    assert (verdict.rank, verdict.certainty) == (2, "likely")


@pytest.mark.parametrize("strategy", ["ddp", "fsdp", "tensor", "pipeline"])
def test_without_the_slow_ranks_file_nobody_is_named(strategy: str) -> None:
    verdict = verdict_on(strategy=strategy, ranks=8, planted="compute", slow=(2,), delay=0.4, missing=(2,))
    assert (verdict.concerned, verdict.certainty) == ((), None)


def pipeline(stages: int, heavy: int) -> Run:
    """Return a run of one pipeline in which one stage computes twice as long."""
    cluster = Cluster(stages)
    for _ in cluster.steps(5):
        for _ in range(4):
            for stage in range(stages):
                cluster.work(stage, compute=1000 * (1 + (stage == heavy)))
                if stage + 1 < stages:
                    cluster.message(stage, stage + 1)
        for stage in reversed(range(1, stages)):
            cluster.message(stage, stage - 1)
    return cluster.run()


@pytest.mark.parametrize("missing", range(4))
def test_a_pipeline_without_one_ranks_file_blames_nobody(missing: int) -> None:
    """GIVEN a stage that is twice as heavy, which has no peers, and one file that is missing."""
    run = pipeline(4, heavy=1)
    messages = run.messages
    known = ~((messages.source == missing) | (messages.destination == missing))
    stay = [i for i in range(4) if i != missing]
    partial = replace(
        run,
        ranks=tuple(run.ranks[i] for i in stay),
        clocks=tuple(run.clocks[i] for i in stay),
        missing_ranks=(missing,),
        messages=messages.rows(np.flatnonzero(known)),
    )
    assert stragglers(partial).verdict.certainty is None
