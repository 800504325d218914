"""By how much runs differ though nothing is changed."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tracekit.comparison.step_verdict import noise_between_runs

NOTHING = np.zeros(8)


def logs(*medians: float) -> np.ndarray:
    return np.log(np.array(medians))


def test_fewer_than_three_runs_do_not_show_it_and_the_floor_holds() -> None:
    noise = noise_between_runs(logs(100, 130), NOTHING[:2], 0.02)
    assert (noise.share, noise.runs, noise.is_measured) == (0.02, 2, False)


def test_three_runs_that_agree_lower_it_but_not_to_nothing() -> None:
    """GIVEN medians that are alike THEN the floor still counts as four more runs."""
    noise = noise_between_runs(logs(100, 100, 100), NOTHING[:3], 0.02)
    assert noise.is_measured
    # The floor's deviation of one run, 0.0198 / 2.326 / sqrt(2); two of six degrees of freedom say 0; t is 3.143.
    assert noise.share == pytest.approx(0.00602 * math.sqrt(4 / 6) * 3.143 * math.sqrt(4 / 3), rel=0.02)
    assert noise.share < 0.02


def test_runs_that_differ_raise_it_beyond_the_floor() -> None:
    noise = noise_between_runs(logs(100, 110, 95, 104), NOTHING[:4], 0.02)
    assert noise.share > 0.1
