"""What known jumps of other clocks tell of a clock between bounds of messages."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from tracekit.analysis.clocks.messages.bounds import BoundedClock, bound_clock
from tracekit.analysis.clocks.messages.known_jumps import KnownJump, with_known_jumps

MS = 1e6
SLACK = 1000.0


def clock_of(
    truth: np.ndarray, *known: KnownJump, slack: float = SLACK, one_sided: slice = slice(0), is_upper: bool = True
) -> BoundedClock:
    """Return the clock of a bound each ms, in turn above and below the truth, with what other clocks tell of it.

    In a part all bounds may be on one side.
    """
    x = np.arange(len(truth)) * MS
    upper = np.arange(len(truth)) % 2 == 0
    upper[one_sided] = is_upper
    bound = truth + np.where(upper, slack, -slack)
    clock = bound_clock(x, bound, upper, 0.0, float(x[-1]))
    assert clock is not None
    return with_known_jumps(clock, x, bound, upper, known)


def steps(clock: BoundedClock) -> list[tuple[float, float, bool]]:
    """Return when a clock jumps, in ms, by how much, in us, and whether nothing shows it."""
    pieces = clock.pieces
    return [
        (piece.from_x / MS, (piece.offset - before.offset) / 1000, piece.is_unproven)
        for before, piece in pairwise(pieces)
    ]


JUMPING = np.where(np.arange(60) < 33, 0.0, 2e6)
STEADY = np.zeros(60)


def test_bounds_on_both_sides_show_that_a_clock_is_steady() -> None:
    assert steps(clock_of(STEADY, KnownJump(20.2 * MS, 20.8 * MS, 5e5))) == []


@pytest.mark.parametrize(("by", "is_unproven"), [(1500.0, True), (-1500.0, True), (3000.0, False), (-3000.0, False)])
def test_bounds_leave_room_for_a_small_jump(by: float, is_unproven: bool) -> None:
    """GIVEN bounds of 1 us above and below THEN a jump of up to 2 us may be unseen."""
    found = steps(clock_of(STEADY, KnownJump(20.2 * MS, 20.8 * MS, by)))
    assert found == ([(20.5, 0.0, True)] if is_unproven else [])


@pytest.mark.parametrize(
    ("is_upper", "by", "is_unproven"), [(True, 5e5, False), (True, -5e5, True), (False, 5e5, True)]
)
def test_bounds_of_one_side_leave_room_for_jumps_away_from_them(is_upper: bool, by: float, is_unproven: bool) -> None:
    known = KnownJump(50.2 * MS, 50.8 * MS, by)
    found = steps(clock_of(STEADY, known, one_sided=slice(45, 60), is_upper=is_upper))
    assert found == ([(50.5, 0.0, True)] if is_unproven else [])


def test_a_jump_is_when_another_clock_is_known_to_jump_alike() -> None:
    ((at_ms, by_us, is_unproven),) = steps(clock_of(JUMPING, KnownJump(32.4 * MS, 32.6 * MS, 2e6)))
    assert (at_ms, is_unproven) == (pytest.approx(32.5), False)
    assert by_us == pytest.approx(2000, abs=5)


@pytest.mark.parametrize("known", [KnownJump(32.4 * MS, 32.6 * MS, -2e6), KnownJump(10.2 * MS, 10.8 * MS, 2e6)])
def test_another_jump_tells_nothing(known: KnownJump) -> None:
    assert steps(clock_of(JUMPING, known)) == steps(clock_of(JUMPING))


def test_a_known_jump_tells_how_large_one_is_that_bounds_of_one_side_show() -> None:
    truth = np.where(np.arange(60) < 50, 0.0, -2e6)
    seen = clock_of(truth, slack=5e5, one_sided=slice(50, 60))
    assert abs(seen.pieces[1].offset) < 1.6e6
    clock = clock_of(truth, KnownJump(49.2 * MS, 54.8 * MS, -2e6), slack=5e5, one_sided=slice(50, 60))
    ((at_ms, by_us, _),) = steps(clock)
    assert 49 <= at_ms <= 55
    assert by_us == pytest.approx(-2000)
    assert not clock.pieces[1].is_one_sided
