"""Quantiles of Student's t against tables."""

from __future__ import annotations

import pytest

from tracekit.analysis.stats.student import student_quantile


@pytest.mark.parametrize(
    ("probability", "degrees", "expected", "error"),
    [
        (0.975, 4, 2.7764, 0.02),
        (0.975, 6, 2.4469, 0.002),
        (0.975, 18, 2.1009, 1e-4),
        (0.995, 10, 3.1693, 0.002),
        (0.025, 18, -2.1009, 1e-4),
        (0.975, 1e9, 1.95996, 1e-5),
    ],
)
def test_quantiles_are_those_of_tables(probability: float, degrees: float, expected: float, error: float) -> None:
    assert student_quantile(probability, degrees) == pytest.approx(expected, rel=error)
