"""Quantiles of Student's t against tables."""

from __future__ import annotations

import math
from statistics import NormalDist

import pytest

from tracekit.stats.uncertainty import student_deviations


@pytest.mark.parametrize(
    ("probability", "degrees", "expected", "error"),
    [
        (0.975, 4, 2.7764, 0.02),
        (0.975, 6, 2.4469, 0.002),
        (0.975, 18, 2.1009, 1e-4),
        (0.99865, 10, 3.957, 0.01),
        (0.975, 1e9, 1.95996, 1e-5),
    ],
)
def test_quantiles_are_those_of_tables(probability: float, degrees: float, expected: float, error: float) -> None:
    assert student_deviations(NormalDist().inv_cdf(probability), degrees) == pytest.approx(expected, rel=error)


def test_one_degree_of_freedom_bounds_nothing() -> None:
    assert student_deviations(2.0, 1) == math.inf
