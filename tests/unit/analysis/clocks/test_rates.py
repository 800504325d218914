"""Whose clock runs at another rate than those of most ranks? Times are nanoseconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from tests.unit.analysis.simulated import START_NS, Cluster
from tracekit.analysis.clocks.rates import odd_rates
from tracekit.model.events import Int64
from tracekit.model.run import Run

STEP_NS = 1_000_000
EVERYONE = ((0, 1, 2, 3),)
OF_TWO = ((0, 1), (2, 3), (0, 2), (1, 3))
RATES = (0.5, 0.95, 1.05, 2.0, 10.0)


def with_collectives(groups: Sequence[tuple[int, ...]] = EVERYONE, steps: int = 6) -> Run:
    """Return a run in which each group has two all-reduces a step."""
    cluster = Cluster(1 + max(max(group) for group in groups))
    for _ in cluster.steps(steps):
        for group in (*groups, *groups):
            for rank in group:
                cluster.work(rank, compute=STEP_NS // 2 + 1000 * rank)
            cluster.collective(group)
    return cluster.run()


def with_messages(*, both_ways: bool = True) -> Run:
    """Return a run in which each rank sends to the next one, twice a step, and gets an answer."""
    cluster = Cluster(4)
    for _ in cluster.steps(6):
        for _ in range(2):
            for rank in range(4):
                cluster.work(rank, compute=STEP_NS // 4)
            for rank in range(3):
                cluster.message(rank, rank + 1)
            for rank in (3, 2, 1) if both_ways else ():
                cluster.message(rank, rank - 1)
    return cluster.run()


def with_times(run: Run, rank: int, show: Callable[[Int64], Int64]) -> Run:
    """Return the run with other ends of what a rank exchanges; `show` is called with int64 arrays of times."""
    summary = run.ranks[rank]
    collectives = replace(summary.collectives, end_ns=show(summary.collectives.end_ns))
    messages = replace(summary.messages, end_ns=show(summary.messages.end_ns))
    changed = replace(summary, collectives=collectives, messages=messages)
    return replace(run, ranks=(*run.ranks[:rank], changed, *run.ranks[rank + 1 :]))


def at_rate(run: Run, rank: int, rate: float) -> Run:
    def show(time_ns: Int64) -> Int64:
        return START_NS + np.rint((time_ns - START_NS) * rate).astype(np.int64)

    return with_times(run, rank, show)


def odd(run: Run) -> dict[int, float]:
    return odd_rates(run.ranks, run.collectives, run.messages)


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize("groups", [EVERYONE, OF_TWO, (*EVERYONE, *OF_TWO)])
def test_collectives_show_the_rate(groups: Sequence[tuple[int, ...]], rank: int, rate: float) -> None:
    assert odd(at_rate(with_collectives(groups), rank, rate)) == {rank: pytest.approx(rate, rel=1e-3)}


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("rank", [0, 2])
def test_messages_show_the_rate(rank: int, rate: float) -> None:
    assert odd(at_rate(with_messages(), rank, rate)) == {rank: pytest.approx(rate, rel=1e-3)}


@pytest.mark.parametrize("rate", [1.0, 1.0005, 0.995, 1.009])
def test_a_small_difference_is_tolerated(rate: float) -> None:
    assert odd(at_rate(with_collectives(), 2, rate)) == {}
    assert odd(at_rate(with_messages(), 2, rate)) == {}


def test_a_rank_that_falls_behind_what_it_receives_has_the_same_clock() -> None:
    assert odd(at_rate(with_messages(both_ways=False), 3, 1.2)) == {}


def test_nothing_tells_which_half_is_right() -> None:
    assert odd(at_rate(with_collectives([(0, 1)]), 1, 2.0)) == {}
    assert odd(at_rate(at_rate(with_collectives(), 2, 2.0), 3, 2.0)) == {}


def test_a_recording_of_two_steps_is_too_short() -> None:
    assert odd(at_rate(with_collectives(steps=2), 2, 2.0)) == {}


def test_a_jump_is_no_rate() -> None:
    """GIVEN a clock that jumps by a step in the middle, THEN its rate is not known."""
    middle_ns = START_NS + 3 * STEP_NS
    jumping = with_times(with_collectives(), 2, lambda time_ns: time_ns + (time_ns > middle_ns) * STEP_NS)
    assert odd(jumping) == {}


@pytest.mark.parametrize("seed", range(20))
def test_ranks_that_leave_late_have_the_same_clock(seed: int) -> None:
    """GIVEN ranks that leave collectives up to a tenth of a step late, as with Gloo."""
    rng = np.random.default_rng(seed)
    run = with_collectives((*EVERYONE, *OF_TWO), steps=3)
    for rank in range(4):
        run = with_times(run, rank, lambda time_ns: time_ns + rng.integers(0, STEP_NS // 10, len(time_ns)))
    assert odd(run) == {}


@pytest.mark.parametrize("rate", [0.5, 2.0, 10.0])
def test_the_rate_is_found_among_ranks_that_do_not_leave_together(rate: float) -> None:
    """GIVEN ranks that share a GPU, and leave collectives up to a twenty-fifth of a step apart."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        run = with_collectives()
        for rank in range(4):
            run = with_times(run, rank, lambda time_ns, rng=rng: time_ns + rng.integers(0, STEP_NS // 25, len(time_ns)))
        assert odd(at_rate(run, 2, rate)) == {2: pytest.approx(rate, rel=0.02)}
