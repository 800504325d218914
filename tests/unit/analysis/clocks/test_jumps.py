"""Jumps of a clock are found at the right moment; late moments and drift are none."""

from __future__ import annotations

import numpy as np
import pytest

from tracekit.analysis.clocks.jumps import Lateness, find_jumps

MS = 1e6


def levels(count: int, seed: int, *, sigma_ns: float = 2000, late_share: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    late = (rng.random(count) < late_share) * rng.uniform(50_000, 500_000, count)
    return np.arange(count) * MS, rng.normal(0, sigma_ns, count) + late


@pytest.mark.parametrize("by_ns", [40_000.0, -40_000.0, 5e6])
@pytest.mark.parametrize("at", [3, 20, 57])
def test_a_jump_is_found_where_it_is(by_ns: float, at: int) -> None:
    """GIVEN a jump of 40 us or 5 ms after 3 of 60 moments, in between, or before the last 3."""
    for seed in range(20):
        x, y = levels(60, seed)
        y[at:] += by_ns
        assert find_jumps(x, y) == [at]


def test_a_jump_beside_a_late_moment_is_found() -> None:
    """GIVEN a jump of -42 us whose first moment is 130 us late THEN it lies at that moment or just after it."""
    for seed in range(20):
        x, y = levels(100, seed, sigma_ns=1000)
        y[40:] -= 42_000
        y[40] += 172_000
        (jump,) = find_jumps(x, y)
        assert jump in (40, 41)


def test_several_jumps() -> None:
    x, y = levels(200, 1)
    y[50:] += 300_000
    y[120:] -= 1e6
    assert find_jumps(x, y) == [50, 120]


@pytest.mark.parametrize("ppm", [0.0, 200.0, -200.0])
def test_neither_drift_nor_late_moments_are_jumps(ppm: float) -> None:
    """GIVEN 5 % late moments and up to 200 ppm THEN 1 in 100 clocks at most seems to jump."""
    found = 0
    for seed in range(100):
        x, y = levels(120, seed, late_share=0.05)
        found += bool(find_jumps(x, y + ppm * 1e-6 * x))
    assert found <= 1


@pytest.mark.parametrize(("count", "at"), [(8, 2), (8, 6), (60, 2), (60, 58)])
def test_two_moments_before_or_after_a_jump_are_enough_if_they_agree(count: int, at: int) -> None:
    for seed in range(20):
        x, y = levels(count, seed)
        y[at:] -= 1e6
        assert find_jumps(x, y) == [at]
        y[0 if at == 2 else -1] += 150_000
        assert find_jumps(x, y) == []


def test_a_drift_is_seen_between_moments_that_are_far_apart() -> None:
    """GIVEN four bursts of five moments, 10 ms apart, in which 1 us of noise outweighs the drift THEN the jump after
    two of them is the only one."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        x = (np.arange(20) // 5 * 10 + np.arange(20) % 5 * 0.01) * MS
        y = rng.normal(0, 1000, 20) + 30e-6 * x
        y[10:] += 1.5e6
        assert find_jumps(x, y) == [10]


def test_a_few_late_moments_at_the_end_are_no_jump() -> None:
    """GIVEN three late moments among the last five, each late by another time."""
    x, y = levels(61, 2)
    y[56:] += [345_000, 343_000, 181_000, 10_000, 10_000]
    assert find_jumps(x, y) == []


@pytest.mark.parametrize(("count", "at"), [(4, 2), (5, 2), (7, 4)])
def test_few_moments_show_a_jump_if_all_are_close_to_their_level(count: int, at: int) -> None:
    for seed in range(20):
        x, y = levels(count, seed, sigma_ns=1000)
        y[at:] += 5e6
        assert find_jumps(x, y) == [at]
        y[-1] += 200_000
        assert find_jumps(x, y) == []


def test_three_moments_show_no_jump() -> None:
    x, y = levels(3, 3)
    y[2:] += 5e6
    assert find_jumps(x, y) == []


def late_by(by_ns: float, count: int, *, transfer_ns: float = 0) -> Lateness:
    rank_ns, others_ns, transfers_ns = (np.full(count, ns, dtype=np.int64) for ns in (by_ns, 0, transfer_ns))
    return Lateness(rank_ns, others_ns, transfers_ns)


@pytest.mark.parametrize("by_ns", [100_000.0, -2e6])
@pytest.mark.parametrize("back", [True, False])
def test_a_clock_that_jumps_again_and_again(by_ns: float, back: bool) -> None:
    """GIVEN steps of four moments, and a jump behind the first moment of each step, there and back or on and on."""
    places = list(range(1, 24, 4))
    for seed in range(20):
        x, y = levels(24, seed, sigma_ns=1000)
        for number, place in enumerate(places):
            y[place:] += by_ns * (-1) ** (number * back)
        assert find_jumps(x, y, lambda: late_by(10_000, 24)) == places


def test_a_clock_that_jumps_and_is_back_after_three_moments_was_not_late() -> None:
    """GIVEN three moments that are 2 ms ahead THEN they show two jumps, unless the rank may have been so late."""
    for seed in range(20):
        x, y = levels(24, seed, sigma_ns=1000)
        y[9:12] += 2e6
        assert find_jumps(x, y, lambda: late_by(500_000, 24)) == [9, 12]
        assert find_jumps(x, y, lambda: late_by(2e6, 24)) == []
        assert find_jumps(x, y) == []
        late, in_time, transfer = late_by(2e6, 24)
        y[9:12] -= 4e6
        assert find_jumps(x, y, lambda: Lateness(in_time, late, transfer)) == []  # noqa: B023


@pytest.mark.parametrize("back_after", [25, 60])
def test_ranks_that_take_turns_on_a_gpu_leave_at_changing_times(back_after: int) -> None:
    """GIVEN moments that are 9 ms ahead for a while, and one in six that is 4 ms late in its turn THEN these are jumps
    only if collectives are over sooner, or if no rank leaves so late."""
    for seed in range(20):
        x, y = levels(60, seed)
        y[10:back_after] += 9e6
        jumps = [at for at in (10, back_after) if at < 60]
        assert find_jumps(x, y, lambda: late_by(0, 60, transfer_ns=80e6)) == jumps
        y[::6] += 4e6
        assert find_jumps(x, y, lambda: late_by(0, 60, transfer_ns=8e6)) == jumps
        assert find_jumps(x, y, lambda: late_by(0, 60, transfer_ns=80e6)) == []


def test_two_moments_between_jumps_are_enough_if_there_are_three_jumps() -> None:
    for seed in range(20):
        x, y = levels(24, seed, sigma_ns=1000)
        y[10:12] += 300_000
        assert find_jumps(x, y, lambda: late_by(0, 24)) == []
        y[12:14] += 600_000
        y[14:] += 900_000
        assert find_jumps(x, y, lambda: late_by(0, 24)) == [10, 12, 14]
