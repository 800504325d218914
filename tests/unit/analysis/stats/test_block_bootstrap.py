"""The block bootstrap against what is known of medians and means of normal values."""

from __future__ import annotations

import numpy as np
import pytest

from tracekit.analysis.stats.block_bootstrap import block_length, bootstrap_medians, variance_of_mean, widening


def correlated(rng: np.random.Generator, count: int, correlation: float) -> np.ndarray:
    """Return normal values of variance 1, each of which is correlated with the one before it."""
    values = rng.standard_normal(count)
    for at in range(1, count):
        values[at] = correlation * values[at - 1] + np.sqrt(1 - correlation**2) * values[at]
    return values


def test_the_length_of_a_block_grows_with_the_cube_root() -> None:
    assert [block_length(count) for count in (1, 3, 8, 10, 64, 1000)] == [1, 1, 2, 2, 4, 10]


def test_medians_vary_as_those_of_normal_values() -> None:
    """GIVEN many runs of 20 normal values THEN resampled medians vary as their medians do: by 0.275 (Monte Carlo)."""
    rng = np.random.default_rng(1)
    deviations = [bootstrap_medians(rng.standard_normal(20), 300, rng).std() * widening(20) for _ in range(100)]
    assert np.mean(deviations) == pytest.approx(0.275, rel=0.12)


def test_resampled_medians_lie_around_the_median_however_far_single_values_are() -> None:
    values = np.array([10.0, 10.1, 9.9, 10.0, 10.2, 9.8, 10.1, 9.9, 10.0, 500.0])
    medians = bootstrap_medians(values, 1000, np.random.default_rng(2))
    assert np.median(medians) == pytest.approx(10.0, abs=0.05)
    assert np.quantile(medians, 0.975) < 10.3


def test_values_that_are_all_alike_have_a_median_that_is_certain() -> None:
    assert set(bootstrap_medians(np.full(9, 7.0), 50, np.random.default_rng(3)).tolist()) == {7.0}


def test_many_values_are_resampled_in_parts() -> None:
    medians = bootstrap_medians(np.arange(300_000.0), 5, np.random.default_rng(4))
    assert medians.shape == (5,)
    assert medians.mean() == pytest.approx(150_000, rel=0.02)


@pytest.mark.parametrize("count", [10, 60])
def test_the_variance_of_the_mean_of_independent_values_is_unbiased(count: int) -> None:
    rng = np.random.default_rng(5)
    variances = [variance_of_mean(rng.standard_normal(count)) for _ in range(3000)]
    assert np.mean(variances) == pytest.approx(1 / count, rel=0.06)


def test_the_mean_of_correlated_values_is_less_certain() -> None:
    """GIVEN 200 values with a correlation of 0.5 THEN the variance of their mean is near three times as large."""
    rng = np.random.default_rng(6)
    variances = [variance_of_mean(correlated(rng, 200, 0.5)) for _ in range(200)]
    assert 2.0 < np.mean(variances) * 200 < 3.2
