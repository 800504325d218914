"""What the mean of a few values must exceed, and by how much its error grows where values that follow are alike."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tracekit.stats.uncertainty import error_growth, least_significant


@pytest.mark.parametrize(("count", "least"), [(1, 40.0), (4, 20.0), (16, 10.0), (100, 10.0)])
def test_it_is_four_standard_errors_and_at_least_a_standard_deviation(count: int, least: float) -> None:
    assert least_significant(10.0, count) == least


def series(rng: np.random.Generator, count: int, correlation: float) -> np.ndarray:
    """Return normal values of variance 1, each of which is correlated with the one before it."""
    values = rng.standard_normal(count)
    for place in range(1, count):
        values[place] = correlation * values[place - 1] + math.sqrt(1 - correlation**2) * values[place]
    return values


@pytest.mark.parametrize("correlation", [0.3, 0.5])
def test_errors_grow_as_those_of_the_mean_do(correlation: float) -> None:
    rng = np.random.default_rng(1)
    growth = error_growth([series(rng, 5000, correlation) for _ in range(2)])
    assert growth == pytest.approx(math.sqrt((1 + correlation) / (1 - correlation)), rel=0.05)


def test_values_that_alternate_are_not_more_certain() -> None:
    assert error_growth([np.tile([1.0, 2.0], 20)]) == 1.0


def test_a_drift_is_bounded_and_equal_values_do_not_correlate() -> None:
    assert error_growth([np.arange(50.0)]) == pytest.approx(3.0)
    assert error_growth([np.full(10, 7.0)]) == 1.0
