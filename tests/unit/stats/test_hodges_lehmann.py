"""Locations and shifts by ranks, against values worked by hand and against what is known of normal values."""

from __future__ import annotations

import numpy as np
import pytest

from tracekit.stats.uncertainty import pseudomedian, shift_between, thinned


def test_the_pseudomedian_is_the_median_of_the_means_of_pairs() -> None:
    """GIVEN 1, 2, 4 THEN the means of pairs are 1, 1.5, 2, 2.5, 3, 4."""
    assert pseudomedian(np.array([1.0, 2, 4])) == 2.25
    assert pseudomedian(np.array([7.0])) == 7.0


def test_the_pseudomedian_of_many_values_takes_a_limited_number_of_pairs() -> None:
    """GIVEN a million values, whose pairs no machine holds THEN values at even distances stand for them."""
    values = np.arange(1e6)
    assert len(thinned(values)) == 2000
    assert pseudomedian(values) == pytest.approx(5e5, rel=0.001)
    assert thinned(values[:2000]).tolist() == values[:2000].tolist()


def test_a_shift_is_between_the_differences_of_pairs() -> None:
    """GIVEN so few values that the interval contains all differences."""
    assert shift_between(np.array([1.0, 2]), np.array([4.0, 7]), 0.98) == (2.0, 4.0, 6.0)


@pytest.mark.parametrize("shape", ["normal", "two clusters", "long tail"])
@pytest.mark.parametrize("counts", [(10, 10), (10, 40)])
def test_the_interval_contains_the_shift_as_often_as_it_says(shape: str, counts: tuple[int, int]) -> None:
    rng = np.random.default_rng(2)

    def sample(count: int) -> np.ndarray:
        values = rng.standard_normal(count)
        if shape == "two clusters":
            values += 20 * (rng.random(count) < 0.3)
        return np.exp(2 * values) if shape == "long tail" else values

    shifts = [shift_between(sample(counts[0]), 3 + sample(counts[1]), 0.98) for _ in range(2000)]
    assert np.mean([shift.low <= 3 <= shift.high for shift in shifts]) == pytest.approx(0.98, abs=0.01)
