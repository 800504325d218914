"""The standard error of a median: exact by hand, right on average, and deaf to a few far values."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tracekit.analysis.stats.uncertainty import median_error


def test_the_error_is_that_of_the_deviations_from_the_median() -> None:
    """GIVEN 1, 2, 3, 4, 100 THEN the deviations 2, 1, 0, 1, 97 have the median 1, and 1.2533 * 1.4826 / sqrt(5)."""
    assert median_error([1, 2, 3, 4, 100]) == pytest.approx(1.2533 * 1.4826 / math.sqrt(5))


@pytest.mark.parametrize("values", [[7], [7, 7, 7], [7, 7, 7, 1000]])
def test_values_that_mostly_agree_have_no_error(values: list[int]) -> None:
    assert median_error(values) == 0


def test_the_error_is_the_spread_of_medians_of_normal_samples() -> None:
    """GIVEN 2000 samples of 101 normal values THEN the mean error is the spread of their medians, to 5 %."""
    rng = np.random.default_rng(0)
    samples = rng.normal(50, 8, (2000, 101))

    actual = np.mean([median_error(sample) for sample in samples])

    assert actual == pytest.approx(np.std(np.median(samples, axis=1)), rel=0.05)
