"""Delays planted in simulated runs are attributed to the rank that caused them, with size and cause."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.simulated import Cluster
from tests.places import ROOT
from tracekit.explain.model_parallel.tables import EXPERT_EXCHANGES, ExpertExchangeSum
from tracekit.explain.stragglers.stragglers import Stragglers, stragglers
from tracekit.findings.finding import held
from tracekit.model.run import Run
from tracekit.model.table import records
from tracekit.report.report import analyze

STEPS = 6


def by_rank(result: Stragglers) -> dict[int, dict[str, Any]]:
    return {row["rank"]: row for row in records(result.by_rank)}


def caused(result: Stragglers) -> list[int]:
    return [row["caused_delay_ns"] for row in records(result.by_rank)]


# ---- one group ------------------------------------------------------------------------------------------------------


def one_group(ranks: int = 4, late: int = 2, **planted: int) -> Run:
    cluster = Cluster(ranks)
    for _ in cluster.steps(STEPS):
        for rank in range(ranks):
            cluster.work(rank, compute=1000)
            if rank == late:
                cluster.work(rank, **planted)
        cluster.collective(range(ranks), transfer=50)
    return cluster.run()


@pytest.mark.parametrize(
    ("planted", "cause"),
    [
        ({"compute": 300, "operations": 0}, "compute"),
        ({"compute": 300, "operations": 3}, "more_work"),
        ({"host": 300}, "host"),
        ({"data": 300}, "data"),
    ],
)
def test_each_cause_is_recognised(planted: dict[str, int], cause: str) -> None:
    result = stragglers(one_group(**planted))
    assert (result.verdict.rank, result.verdict.cause, result.verdict.caused_delay_ns) == (2, cause, 300)
    assert caused(result) == [0, 0, 300, 0]
    (finding,) = result.findings
    assert (finding.rank, finding.saving_ns, finding.evidence["cause"]) == (2, 300, cause)


def exchanges_of(received_bytes: int) -> tuple[ExpertExchangeSum, ...]:
    return tuple(
        ExpertExchangeSum(group=None, module=None, step=step, received_bytes=received_bytes, uncovered_ns=0)
        for step in range(STEPS)
    )


@pytest.mark.parametrize(
    ("planted", "hot_bytes", "cause", "remedy"),
    [
        ({"compute": 300, "operations": 0}, 130, "more_work", "load"),
        ({"compute": 300, "operations": 0}, 110, "compute", "ranks"),  # less than what routers do
        ({"host": 300}, 130, "host", "ranks"),
    ],
)
def test_a_rank_that_computes_longer_because_of_its_tokens_is_told_so(
    planted: dict[str, int], hot_bytes: int, cause: str, remedy: str
) -> None:
    """GIVEN a late rank 2 whose experts receive more than the 100 bytes of each other rank."""
    run = one_group(**planted)
    loads = [100, 100, hot_bytes, 100]
    ranks = [s.with_part(EXPERT_EXCHANGES, exchanges_of(load)) for s, load in zip(run.ranks, loads, strict=True)]
    (finding,) = stragglers(replace(run, ranks=tuple(ranks))).findings

    assert (finding.rank, finding.evidence["cause"], finding.remedy) == (2, cause, remedy)
    assert finding.evidence.get("expert_load") == (1.3 if remedy == "load" else None)


def test_of_several_hosts_that_of_the_late_rank_is_where_to_look() -> None:
    run = one_group(compute=300, operations=0)
    hosts = ["node1", "node1", "node2", "node2"]
    named = replace(run, ranks=tuple(replace(s, host=host) for s, host in zip(run.ranks, hosts, strict=True)))
    found, without = stragglers(named).findings[0], stragglers(run).findings[0]

    assert (found.evidence["on_host"], without.evidence.get("on_host")) == ("node2", None)
    assert "rank 2 on node2:" in (found.action or "")


def test_equal_ranks_name_nobody() -> None:
    result = stragglers(one_group(compute=0))
    assert (result.verdict.rank, result.findings, caused(result)) == (None, (), [0] * 4)
    assert result.verdict.text == "no rank is named: none is late more than the others"


def test_a_delay_of_a_hundredth_of_the_step_is_not_named() -> None:
    result = stragglers(one_group(compute=10))
    assert (result.verdict.rank, result.verdict.caused_delay_ns, held(result.findings)) == (None, 10, ())


def one_step(segments: int) -> Run:
    """Return a run of one step in which rank 3 of 8 is late by 300 to each of some collectives."""
    cluster = Cluster(8)
    for _ in cluster.steps(1):
        for number in range(8):
            for rank in range(8):
                cluster.work(rank, compute=1000 + (rank + number) % 3)
            if number < segments:
                cluster.work(3, host=300)
            cluster.collective(range(8))
    return cluster.run()


def test_of_one_step_a_rank_that_comes_last_again_and_again_is_likely() -> None:
    verdict = stragglers(one_step(segments=5)).verdict
    assert (verdict.rank, verdict.cause, verdict.certainty) == (3, "host", "likely")


def test_of_one_step_a_rank_that_is_late_once_is_not_named() -> None:
    """GIVEN one pause, which may be an accident, however long it is beside what ranks differ by."""
    verdict = stragglers(one_step(segments=1)).verdict
    assert (verdict.rank, verdict.certainty) == (None, None)


def test_a_delay_in_few_steps_is_no_straggler() -> None:
    """GIVEN rank 1 late by half a step, but in two steps of six THEN no rank is named."""
    cluster = Cluster(3)
    for number in cluster.steps(STEPS):
        for rank in range(3):
            cluster.work(rank, compute=1000 + 500 * (rank == 1 and number in (1, 4)))
        cluster.collective(range(3))
    assert stragglers(cluster.run()).verdict.rank is None


def test_one_slow_step_of_a_peer_does_not_hide_a_straggler() -> None:
    cluster = Cluster(2)
    for number in cluster.steps(STEPS):
        cluster.work(0, compute=1000 + 1500 * (number == 3))
        cluster.work(1, compute=1200)
        cluster.collective((0, 1))
    assert stragglers(cluster.run()).verdict.rank == 1


@pytest.mark.parametrize(("error", "waited"), [(100, 300), (160, 0)])
def test_the_uncertainty_of_clocks_hides_arrivals_but_not_how_long_ranks_work(error: int, waited: int) -> None:
    """GIVEN a delay of 300 THEN clocks that are each off by up to 160 hide who came last, but not who works longer."""
    cluster = Cluster(2, error=error)
    for _ in cluster.steps(STEPS):
        cluster.work(0, compute=1000)
        cluster.work(1, compute=1300)
        cluster.collective((0, 1))
    result = stragglers(cluster.run())
    assert (result.verdict.rank, result.verdict.caused_delay_ns) == (1, 300)
    assert by_rank(result)[0]["wait_ns"] == waited


# ---- chains ---------------------------------------------------------------------------------------------------------


def hybrid(slow: int, delay: int, jitter: Sequence[int] = (), **planted: int) -> Cluster:
    """Return a cluster of dp 2 x pp 2 x tp 2, with four microbatches through both stages, and gradients at the end."""
    cluster = Cluster(8)
    noise = iter([*jitter, *[0] * 10_000])
    for _ in cluster.steps(STEPS):
        for stage, other in [(0, 1)] * 4 + [(1, 0)] * 4:
            for dp in (0, 1):
                pair = [4 * dp + 2 * stage, 4 * dp + 2 * stage + 1]
                for rank in pair:
                    cluster.work(rank, compute=1000 + next(noise))
                    if rank == slow:
                        cluster.work(rank, **planted or {"compute": delay, "operations": 0})
                cluster.collective(pair)
                for rank in pair:
                    cluster.message(rank, rank + 2 * (other - stage))
        for rank in range(4):
            cluster.collective((rank, rank + 4), transfer=100)
    return cluster


@pytest.mark.parametrize("slow", [0, 5])
def test_in_a_hybrid_run_the_delay_is_attributed_to_the_slow_rank_alone(slow: int) -> None:
    result = stragglers(hybrid(slow, 400).run())
    assert (result.verdict.rank, result.verdict.cause) == (slow, "compute")
    assert [rank for rank, ns in enumerate(caused(result)) if ns] == [slow]
    assert result.verdict.caused_delay_ns == 4 * 400


@settings(max_examples=20, deadline=None)
@given(slow=st.integers(0, 7), jitter=st.lists(st.integers(0, 60), min_size=400, max_size=400))
def test_jitter_does_not_change_the_attribution(slow: int, jitter: list[int]) -> None:
    assert stragglers(hybrid(slow, 400, jitter).run()).verdict.rank == slow


def test_a_slow_link_is_named_and_not_a_rank() -> None:
    """GIVEN pairs that reduce before all ranks do, of which the pair (2, 3) takes three times as long."""
    cluster = Cluster(6)
    for _ in cluster.steps(STEPS):
        for rank in range(6):
            cluster.work(rank, compute=1000)
        for pair in ((0, 1), (2, 3), (4, 5)):
            cluster.collective(pair, transfer=600 if pair == (2, 3) else 200, size_bytes=1 << 20)
        for rank in range(6):
            cluster.work(rank, compute=100 + rank)
        cluster.collective(range(6))
    result = stragglers(cluster.run())
    assert (result.verdict.rank, result.verdict.cause) == (None, "link")
    assert result.verdict.caused_delay_ns == pytest.approx(400, abs=10)
    (link,) = result.links
    assert (link.ranks, link.slowdown) == ((2, 3), 3.0)


# ---- invariants -----------------------------------------------------------------------------------------------------

DELAYS = st.lists(st.integers(0, 900), min_size=12, max_size=12)


def small(delays: Sequence[int], label: Sequence[int] = (0, 1, 2, 3), offsets: Sequence[int] = ()) -> Run:
    """Return a run of four ranks, numbered by `label`: pairs reduce, then all, in three steps with many delays."""
    cluster = Cluster(4, offsets=[offsets[label.index(i)] for i in range(4)] if offsets else ())
    for number in cluster.steps(3):
        for rank in range(4):
            cluster.work(label[rank], compute=100 + delays[(3 * rank + number) % 12])
        for pair in ((0, 1), (2, 3)):
            cluster.collective(sorted(label[rank] for rank in pair))
        for rank in range(4):
            cluster.work(label[rank], host=10 + delays[(5 * rank + number + 1) % 12])
        cluster.collective(range(4))
    return cluster.run()


@settings(max_examples=12)
@given(delays=DELAYS, label=st.sampled_from(list(permutations(range(4)))))
def test_numbers_of_ranks_do_not_matter(delays: list[int], label: tuple[int, ...]) -> None:
    plain, other = stragglers(small(delays)), stragglers(small(delays, label))
    rows = by_rank(other)
    for rank, row in by_rank(plain).items():
        assert rows[label[rank]] == row | {"rank": label[rank]}
    named = plain.verdict.rank
    assert other.verdict.rank == (None if named is None else label[named])
    assert other.verdict.caused_delay_ns == plain.verdict.caused_delay_ns


@settings(max_examples=12)
@given(delays=DELAYS, offsets=st.lists(st.integers(-(10**10), 10**10), min_size=4, max_size=4))
def test_known_clock_offsets_do_not_matter(delays: list[int], offsets: list[int]) -> None:
    plain, other = stragglers(small(delays)), stragglers(small(delays, offsets=offsets))
    assert by_rank(plain) == by_rank(other)
    assert plain.verdict == other.verdict


@given(delays=DELAYS)
def test_ranks_cause_no_more_delay_than_the_others_waited(delays: list[int]) -> None:
    result = stragglers(small(delays))
    waited = sum(row["wait_ns"] for row in records(result.by_rank))
    assert 0 <= sum(caused(result)) <= waited + 4


def test_several_reductions_at_a_time_are_waited_for_once() -> None:
    """GIVEN a recording of DDP, whose buckets are in flight together, THEN a peer waits for no more than it exposes."""
    found = analyze(ROOT / "tests" / "data" / "ddp_slow_rank", only="stragglers").stragglers
    assert found is not None
    (finding,) = held(found.findings)
    assert 0 < finding.evidence["others_wait_ns"] <= finding.evidence["peers_exposed_comm_ns"]  # type: ignore[operator]
