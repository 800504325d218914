"""Slopes and their errors: planted lines, outliers, few points, deviations that are alike."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tracekit.job.clocks.fit import fit_line
from tracekit.stats.uncertainty import student_deviations

SLOPE = 73e-6
LENGTH = 170e6


def deviations(kind: str, count: int, rng: np.random.Generator) -> np.ndarray:
    normal = rng.normal(0, 2000, count)
    if kind == "outliers":
        return normal + (rng.random(count) < 0.05) * rng.uniform(0, 5e6, count)
    if kind == "skewed":
        return rng.lognormal(0, 1, count) * 1000
    if kind == "alike":  # each is 0.7 of the one before, and something new
        result = normal
        for i in range(1, count):
            result[i] += 0.7 * result[i - 1]
        return result
    return normal


@pytest.mark.parametrize("kind", ["normal", "outliers", "skewed"])
@pytest.mark.parametrize("count", [6, 9, 15, 16, 40, 300, 3000])
def test_the_stated_error_is_the_real_one(kind: str, count: int) -> None:
    """GIVEN 200 lines THEN 2 errors hold in about 95 % of them, and 3 errors in about 99.7 %."""
    rng = np.random.default_rng(count)
    off, degrees = [], count - 2
    for _ in range(200):
        x = np.sort(rng.uniform(0, LENGTH, count))
        fit = fit_line(x, SLOPE * x + deviations(kind, count, rng), resolution=100)
        off.append(abs(fit.slope - SLOPE) / fit.slope_error)
    held = [np.mean(np.array(off) < student_deviations(errors, degrees)) for errors in (1, 2, 3)]
    assert held[0] < 0.85  # or the error would be far too large
    assert held[1] > 0.91
    assert held[2] > 0.97


@pytest.mark.parametrize("x", [[5.0], [5.0, 5.0, 5.0], [0.0, 9.0]])
def test_too_few_times_determine_no_slope(x: list[float]) -> None:
    fit = fit_line(np.array(x), np.zeros(len(x)), resolution=1)
    assert math.isinf(fit.slope_error)
