"""The ratio of the typical lengths of steps, and its interval."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracekit.comparison.step_verdict import CONFIDENCE, estimate_change, judge


def steps(seed: int, count: int = 20, *, mean: float = 100.0, variation: float = 0.02) -> np.ndarray:
    return mean * (1 + variation * np.random.default_rng(seed).standard_normal(count))


def test_a_run_and_itself_have_a_ratio_of_1_inside_the_interval() -> None:
    run = steps(1)
    change = estimate_change([run], run)
    assert change.ratio == 1.0
    assert change.low is not None
    assert change.high is not None
    assert change.low < 1 < change.high


def test_the_ratio_is_that_of_the_pseudomedians() -> None:
    """GIVEN a baseline in which one of five steps is far longer THEN the median of the means of its pairs is 3."""
    change = estimate_change([np.array([1.0, 2, 3, 4, 90])], np.array([6.0, 6, 6, 6, 6]))
    assert (change.baseline, change.candidate, change.ratio) == (pytest.approx(3), pytest.approx(6), pytest.approx(2))


def test_the_noise_of_steps_and_of_runs_add_in_quadrature() -> None:
    runs = [steps(1)], steps(2)
    without, with_noise = (
        estimate_change(*runs, run_noise=1e-9),
        estimate_change(*runs, run_noise=0.03),
    )
    assert without.low is not None
    assert without.high is not None
    assert with_noise.low is not None
    assert with_noise.high is not None
    within = math.log(without.high / without.low) / 2
    assert math.log(with_noise.high / with_noise.low) / 2 == pytest.approx(
        math.hypot(within, math.log1p(0.03)), rel=0.02
    )
    assert with_noise.step_noise == pytest.approx(math.expm1(within), rel=0.02)


@pytest.mark.parametrize("count", [4, 7])
def test_fewer_than_eight_steps_leave_10_percent_open(count: int) -> None:
    change = estimate_change([np.full(count, 100.0)], np.full(30, 109.9))
    assert change.low == pytest.approx(1.099 / 1.1)
    assert change.high == pytest.approx(1.099 / 0.9)
    assert change.steps == count


def test_a_single_step_has_no_interval() -> None:
    change = estimate_change([np.array([100.0, 101.0, 102.0])], steps(1, 1))
    assert (change.low, change.high, change.step_noise, change.step_variance) == (None, None, None, None)


def test_few_steps_show_a_change_far_beyond_how_they_differ() -> None:
    """GIVEN three steps on both sides, all of them longer by far, or by little, than those of the baseline."""
    baseline = np.array([22.8, 23.7, 26.4])
    assert judge(estimate_change([baseline], np.array([56.7, 63.9, 73.0]))).judgement == "slower"
    assert judge(estimate_change([baseline], np.array([26.7, 27.5, 29.0]))).judgement == "inconclusive"


@pytest.mark.parametrize("count", [2, 3])
def test_few_steps_of_equal_jobs_are_called_different_as_rarely_as_promised(count: int) -> None:
    rng = np.random.default_rng(count)
    pairs = [[100.0 * np.exp(0.1 * rng.standard_normal(count)) for _ in range(2)] for _ in range(1000)]
    called = sum(judge(estimate_change([one], other)).judgement != "inconclusive" for one, other in pairs)
    assert called <= 2.5 * (1 - CONFIDENCE) * len(pairs)


def test_three_baselines_show_the_noise_between_runs() -> None:
    change = estimate_change([steps(seed) for seed in range(3)], steps(9))
    assert change.run_noise.is_measured
    assert not estimate_change([steps(0), steps(1)], steps(9)).run_noise.is_measured


def half_width(baselines: list[np.ndarray], candidate: np.ndarray) -> float:
    """Return half the width of the interval of the ratio's logarithm, without noise between runs."""
    change = estimate_change(baselines, candidate, run_noise=1e-9)
    assert change.low is not None
    assert change.high is not None
    return math.log(change.high / change.low) / 2


def test_a_stall_in_one_step_hardly_moves_the_interval() -> None:
    run, stalled = steps(1, 10), steps(2, 10)
    stalled[3] *= 10
    assert estimate_change([run], stalled).ratio == pytest.approx(estimate_change([run], steps(2, 10)).ratio, abs=0.01)
    assert half_width([run], stalled) < 1.5 * half_width([run], steps(2, 10))


def test_steps_that_follow_each_other_alike_tell_less() -> None:
    """GIVEN the same steps in another order THEN the interval is wider where long ones follow long ones."""
    first, second = steps(1, 40), steps(2, 40)
    assert half_width([np.sort(first)], np.sort(second)) > 2 * half_width([first], second)


LENGTHS = st.lists(st.floats(1.0, 1e12), min_size=1, max_size=12).map(np.array)


@settings(max_examples=60, deadline=None)
@given(baselines=st.lists(LENGTHS, min_size=1, max_size=4), candidate=LENGTHS)
def test_the_ratio_lies_in_its_interval_whatever_the_steps(baselines: list[np.ndarray], candidate: np.ndarray) -> None:
    change = estimate_change(baselines, candidate)
    if change.low is not None:
        assert change.high is not None
        assert 0 < change.low <= change.ratio * (1 + 1e-12)
        assert change.ratio * (1 - 1e-12) <= change.high < math.inf
