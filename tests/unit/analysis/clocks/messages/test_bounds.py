"""Lines between bounds: what is left of a clock by upper and lower bounds over time."""

from __future__ import annotations

import numpy as np
import pytest

from tracekit.analysis.clocks.messages.bounds import BoundedClock, bound_clock

MS = 1e6


def bounded(
    truth: np.ndarray, slack: np.ndarray, *, every: float = MS, end: float | None = None
) -> BoundedClock | None:
    """Return the clock of bounds in turn above and below `truth`, each `slack` away."""
    x = np.arange(len(truth)) * every
    is_upper = np.arange(len(truth)) % 2 == 0
    bound = truth + np.where(is_upper, slack, -slack)
    return bound_clock(x, bound, is_upper, 0.0, float(x[-1]) if end is None else end)


def at(clock: BoundedClock, x: float) -> float:
    piece = [piece for piece in clock.pieces if piece.from_x <= x][-1]
    return piece.offset + (clock.slope or 0.0) * x


@pytest.mark.parametrize("seed", range(20))
def test_the_error_holds_and_is_that_of_the_best_bounds(seed: int) -> None:
    """GIVEN 400 bounds at least 10 us off, and a drift of up to 80 ppm THEN the error holds in all the recording."""
    rng = np.random.default_rng(seed)
    truth = 3e5 + rng.uniform(-80e-6, 80e-6) * np.arange(400) * MS
    clock = bounded(truth, 10_000 + rng.exponential(50_000, 400))
    assert clock is not None
    assert 10_000 <= clock.error < 30_000
    assert max(abs(at(clock, i * MS) - truth[i]) for i in (0, 100, 200, 399)) <= clock.error


def test_equal_bounds_leave_their_middle() -> None:
    clock = bounded(np.full(40, 500.0), np.full(40, 100.0))
    assert clock is not None
    assert clock.slope is None
    assert at(clock, 0) == pytest.approx(500, abs=1)
    assert clock.error == pytest.approx(100, rel=0.3)  # it may drift a little between the bounds


def test_the_error_grows_beyond_the_bounds() -> None:
    """GIVEN bounds in the first 10 ms THEN a second later the clock may have drifted by 100 ppm, which is 100 us."""
    clock = bounded(np.zeros(10), np.full(10, 5000.0), end=1000 * MS)
    assert clock is not None
    assert clock.error == pytest.approx(100_000 + 5000, rel=0.02)


def test_a_jump_divides_the_bounds() -> None:
    truth = np.where(np.arange(60) < 33, 0.0, 2e6)
    clock = bounded(truth, np.full(60, 1000.0))
    assert clock is not None
    assert [round(piece.offset / 1e6) for piece in clock.pieces] == [0, 2]
    assert abs(clock.pieces[1].from_x - 33 * MS) <= clock.pieces[1].from_error + MS
    assert clock.error < 5000


@pytest.mark.parametrize("side", [True, False])
def test_bounds_of_one_side_leave_everything(side: bool) -> None:
    assert bound_clock(np.arange(5.0), np.zeros(5), np.full(5, side), 0.0, 4.0) is None


@pytest.mark.parametrize(("one_sided", "between"), [(slice(50, 60), (49, 59)), (slice(0, 10), (0, 10))])
@pytest.mark.parametrize("jump", [2e6, -3e5])
def test_at_an_end_bounds_of_one_side_show_by_how_much_a_clock_jumps_at_least(
    one_sided: slice, between: tuple[int, int], jump: float
) -> None:
    truth, places = np.zeros(60), np.arange(60)
    truth[one_sided] = jump
    is_upper = places % 2 == 0
    is_upper[one_sided] = jump < 0
    clock = bound_clock(places * MS, truth + np.where(is_upper, 1000.0, -1000.0), is_upper, 0.0, 59 * MS)
    assert clock is not None
    outer, inner = clock.pieces[:: 1 if one_sided.start == 0 else -1]
    assert outer.offset - inner.offset == pytest.approx(jump - np.sign(jump) * 1000, abs=2000)
    assert clock.pieces[1].between == pytest.approx(between, abs=1)
    assert [piece.is_one_sided for piece in (outer, inner)] == [True, False]
    assert clock.error < 8000
    assert abs(clock.pieces[1].from_x - (49.5 if one_sided.start else 9.5) * MS) <= MS


def test_between_two_jumps_bounds_of_one_side_leave_everything() -> None:
    truth, places = np.zeros(60), np.arange(60)
    truth[25:35] = 2e6
    is_upper = (places % 2 == 0) & (truth == 0)
    assert bound_clock(places * MS, truth + np.where(is_upper, 1000.0, -1000.0), is_upper, 0.0, 59 * MS) is None


def test_no_bounds() -> None:
    assert bound_clock(np.empty(0), np.empty(0), np.empty(0, dtype=np.bool_), 0.0, 1.0) is None


def test_a_contradiction_everywhere_is_no_clock() -> None:
    rng = np.random.default_rng(1)
    assert bounded(rng.uniform(-1e7, 1e7, 60), np.full(60, 10.0)) is None
