"""Slower, faster, equivalent or inconclusive, and how many steps would decide."""

from __future__ import annotations

import math

import pytest

from tracekit.comparison.step_verdict import ChangeEstimate, RunNoise, judge, steps_to_tell_apart


def change(
    low: float | None, high: float | None, *, ratio: float = 1.0, steps: int = 10, noise: float = 0.02
) -> ChangeEstimate:
    """Return a change whose steps vary by 2 % of a step on each side."""
    return ChangeEstimate(
        baseline=100.0,
        candidate=100.0 * ratio,
        steps=steps,
        run_noise=RunNoise(share=noise, runs=1, is_measured=False),
        low=low,
        high=high,
        step_variance=2 * 0.025**2,
    )


@pytest.mark.parametrize(
    ("ratio", "low", "high", "expected"),
    [
        (1.05, 1.02, 1.08, "slower"),
        (0.95, 0.92, 0.98, "faster"),
        (1.00, 0.98, 1.02, "equivalent"),
        (1.02, 1.01, 1.03, "equivalent"),  # longer for sure, and by less than matters
        (1.028, 1.005, 1.05, "inconclusive"),  # longer for sure, and whether it matters is open
        (0.972, 0.95, 0.995, "inconclusive"),
        (1.05, 0.99, 1.11, "inconclusive"),
        (1.00, 0.90, 1.10, "inconclusive"),
        (1.05, None, None, "inconclusive"),
    ],
)
def test_the_ratio_and_its_interval_decide(ratio: float, low: float | None, high: float | None, expected: str) -> None:
    assert judge(change(low, high, ratio=ratio), margin=0.03).judgement == expected


def test_a_wider_margin_makes_a_change_equivalent() -> None:
    assert judge(change(1.01, 1.05), margin=0.06).judgement == "equivalent"


def test_the_steps_that_would_decide() -> None:
    """GIVEN a change of 4 %, noise between runs of 2 %, steps that vary by 2 %."""
    verdict = judge(change(0.99, 1.09, ratio=1.04))
    expected = 2.3263**2 * 2 * 0.025**2 / (math.log(1.04) ** 2 - math.log(1.02) ** 2)
    assert verdict.steps_needed == max(math.ceil(expected), 11)


def test_the_steps_that_would_show_equivalence() -> None:
    verdict = judge(change(0.96, 1.045, ratio=1.003))
    distance = math.log(1.03) - math.log(1.003)
    assert verdict.steps_needed == math.ceil(2.3263**2 * 2 * 0.025**2 / (distance**2 - math.log(1.02) ** 2))


def test_no_number_of_steps_decides_within_the_noise_between_runs() -> None:
    assert judge(change(0.985, 1.052, ratio=1.018)).steps_needed is None


def test_without_an_interval_eight_steps_are_the_least() -> None:
    assert judge(change(None, None, steps=1)).steps_needed == 8


def test_more_steps_than_anybody_records_are_not_asked_for() -> None:
    assert steps_to_tell_apart(change(0.9, 1.1, ratio=1.02001, noise=0.02), 0.0) is None
