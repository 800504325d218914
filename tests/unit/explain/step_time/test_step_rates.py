"""Which ranks are slower than others that do not wait for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.exchanges import rank
from tracekit.explain.step_time.step_rates import find_slow_rates, slow_rate_finding, steps_per_s
from tracekit.model.summary import RankSummary

MS = 1_000_000


def rank_with(
    number: int, steps_ms: Sequence[float], *, compute_ms: float = 8, data_ms: float | None = None
) -> RankSummary:
    summary = rank(number, steps=range(len(steps_ms)))
    data_ns = None if data_ms is None else round(data_ms * MS)
    steps = [
        replace(step, step_ns=round(length_ms * MS), compute_ns=round(compute_ms * MS), data_ns=data_ns)
        for step, length_ms in zip(summary.steps, steps_ms, strict=True)
    ]
    return replace(summary, steps=tuple(steps))


def test_a_rate_is_the_steps_over_their_time() -> None:
    assert steps_per_s(rank_with(0, [100, 300])) == pytest.approx(5)
    assert steps_per_s(rank_with(0, [])) is None


def test_a_rank_that_is_clearly_slower_is_found_with_what_it_costs_the_job() -> None:
    found = find_slow_rates([rank_with(0, [10] * 3), rank_with(1, [40] * 3, compute_ms=38), rank_with(2, [10] * 3)], {})

    assert found is not None
    assert (found.slow, found.peers, found.longer_ns) == ((1,), (0, 2), 30 * MS)
    assert found.rates == pytest.approx((25,))
    assert (found.peers_rate, found.job_rate, found.even_job_rate) == pytest.approx((100, 225, 300))
    assert found.longer_parts_ns == {"compute": 30 * MS, "data": 0, "rpc": 0, "host": 0}


@pytest.mark.parametrize(
    "steps_ms",
    [
        ([10, 10, 10], [12, 12, 12], [10, 10, 10]),  # by a fifth
        ([10, 10, 10], [10, 10, 90], [10, 10, 10]),  # in one step
        ([10, 10, 10], [40, 40, 40], [28, 28, 28]),  # the peers differ as much
        ([10, 10, 10],),
        ([10, 10, 10], []),
    ],
)
def test_what_is_not_clear_is_not_found(steps_ms: tuple[list[float], ...]) -> None:
    assert find_slow_rates([rank_with(number, of_rank) for number, of_rank in enumerate(steps_ms)], {}) is None


@pytest.mark.parametrize("steps", [2, 3, 10])
@pytest.mark.parametrize("ranks", [2, 3, 8])
@pytest.mark.parametrize("stalls", [False, True])
def test_ranks_whose_steps_differ_by_chance_are_hardly_ever_named(steps: int, ranks: int, stalls: bool) -> None:
    """GIVEN ranks whose steps vary by 30 %, or stall by 100 ms now and then THEN at most 4 % of the runs name one."""
    rng = np.random.default_rng(0)
    named = 0
    for _ in range(200):
        lengths_ms = 20 * rng.lognormal(0, 0.3, size=(ranks, steps))
        if stalls:
            often = rng.random((ranks, steps)) < 0.3
            lengths_ms = 20 + rng.exponential(3, (ranks, steps)) + often * rng.exponential(100, (ranks, steps))
        named += (
            find_slow_rates([rank_with(number, lengths_ms[number].tolist()) for number in range(ranks)], {}) is not None
        )
    assert named <= 8


def test_one_stall_of_a_slow_rank_does_not_hide_it() -> None:
    found = find_slow_rates(
        [rank_with(1, [11, 13, 11]), rank_with(2, [495, 111, 112]), rank_with(3, [11, 212, 21])], {}
    )

    assert found is not None
    assert found.slow == (2,)


def test_a_slow_rank_stands_out_by_its_compute_where_hosts_stall() -> None:
    """GIVEN stalls of hosts in steps of two ranks, one of which computes longer in all its steps."""
    ranks = [rank_with(1, [35, 19, 23]), rank_with(2, [357, 147, 789]), rank_with(3, [349, 796, 46])]
    own_ns = {1: [12 * MS] * 3, 2: [340 * MS, 130 * MS, 120 * MS], 3: [330 * MS, 780 * MS, 30 * MS]}
    compute_ns = {1: [11 * MS] * 3, 2: [111 * MS] * 3, 3: [11 * MS] * 3}

    assert find_slow_rates(ranks, {}, [own_ns]) is None
    found = find_slow_rates(ranks, {}, [own_ns, compute_ns])
    assert found is not None
    assert found.slow == (2,)


def test_a_rank_whose_steps_are_mostly_longer_is_not_slow_if_its_peer_made_fewer_steps() -> None:
    assert find_slow_rates([rank_with(0, [120] * 5), rank_with(1, [20, 20, 20, 20, 1500])], {}) is None


def test_more_time_of_its_own_without_a_lower_rate_makes_no_rank_slow() -> None:
    ranks = [rank_with(number, [70, 70, 70]) for number in range(3)]
    own_ns = {0: [8 * MS] * 3, 1: [60 * MS] * 3, 2: [9 * MS] * 3}

    assert find_slow_rates(ranks, {}, [own_ns]) is None


@pytest.mark.parametrize(
    ("slow", "waits_ms", "cause", "action"),
    [
        (rank_with(1, [40] * 3, compute_ms=38), 0, "slow_compute", "a step computes 30.0 ms longer"),
        (rank_with(1, [40] * 3, data_ms=30), 0, "slow_data", "load its data ahead: a step loads 30.0 ms longer"),
        (rank_with(1, [40] * 3), 90, "rpc", "a step waits for remote calls 30.0 ms longer"),
        (rank_with(1, [40] * 3), 0, "slow_host", "a step spends 30.0 ms longer there"),
    ],
)
def test_the_cause_is_what_is_longer(slow: RankSummary, waits_ms: int, cause: str, action: str) -> None:
    found = find_slow_rates([rank_with(0, [10] * 3), slow], {1: waits_ms * MS})
    assert found is not None

    finding = slow_rate_finding(found, names={1: "trainer1"})

    assert finding.cause == cause
    assert action in (finding.action or "")
    assert (finding.action or "").endswith(". The job would make 200 steps a second, not 125")
    assert "trainer1 (rank 1) makes 25 steps a second, its peer 100" in finding.text
