"""Verdicts are sure, likely or none: by the size of a delay against the noise of peers, and by how it persists."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tracekit.explain.stragglers.certainty import Evidence, Grading, LastArrivals, student_quantile, student_tail
from tracekit.findings.finding import Certainty

STEP_NS = 1_000_000


def evidence(
    series: list[int], *, noise: int = 0, peers: int = 7, clock: int = 0, last_arrivals: LastArrivals | None = None
) -> Evidence:
    """Return a rank's delays in ten-thousandths of a step. Its peers vary by `noise`, alternating in sign."""
    unit = STEP_NS // 10_000
    series_ns = np.array(series, dtype=np.int64) * unit
    signs = np.where(np.add.outer(np.arange(len(series)), np.arange(peers)) % 2, 1, -1)
    return Evidence(
        series_ns=series_ns,
        slow_ns=series_ns[:, None],
        peers_ns=noise * unit * signs,
        clock_ns=clock * unit,
        last_arrivals=last_arrivals,
    )


def grade_of(found: Evidence, *, ranks: int = 8, steps: int | None = None, complete: bool = True) -> Certainty | None:
    steps = len(found.series_ns) if steps is None else steps
    grading = Grading(
        step_ns=STEP_NS, candidates=ranks if steps == 1 else 2 * ranks, ranks=ranks, steps=steps, complete=complete
    )
    return grading.grade(found)


@pytest.mark.parametrize(
    ("series", "noise", "expected"),
    [
        ([1500, 1500, 1500], 100, "sure"),
        ([1500, 1400, 1600, 0], 100, "likely"),  # three steps of four
        ([1500, 0, 0, 0], 100, None),
        ([150, 150, 150, 150], 0, None),  # less than a fiftieth of the step
        ([1500, 1500, 1500], 1000, None),  # peers vary as much
        ([-1500, -1500, -1500], 100, None),
    ],
)
def test_a_delay_is_graded_by_its_size_and_persistence(
    series: list[int], noise: int, expected: Certainty | None
) -> None:
    assert grade_of(evidence(series, noise=noise)) == expected


def test_two_steps_are_never_sure() -> None:
    assert grade_of(evidence([3000, 3000], noise=10)) == "likely"


def test_what_is_missing_lowers_the_grade() -> None:
    assert grade_of(evidence([3000] * 5, noise=10), complete=False) == "likely"


@pytest.mark.parametrize(("size", "expected"), [(400, None), (1500, "sure")])
def test_two_ranks_have_a_floor_of_noise(size: int, expected: Certainty | None) -> None:
    """GIVEN two ranks, one of which is late by the same time in each step, so that no noise shows."""
    assert grade_of(evidence([size] * 4, peers=0), ranks=2) == expected


def test_few_steps_have_a_floor_of_noise() -> None:
    """GIVEN no noise, WHEN three steps were recorded in place of four, THEN twice as much is assumed."""
    three, four = (Grading(step_ns=STEP_NS, candidates=16, ranks=8, steps=steps) for steps in (3, 4))
    assert three.noise_ns(evidence([600] * 3)) == pytest.approx(2 * four.noise_ns(evidence([600] * 3)))


def test_a_small_delay_is_sure_or_not_named() -> None:
    """Healthy ranks differ by up to 5 % of a step in all steps of a short window."""
    assert grade_of(evidence([450] * 20)) == "sure"
    assert grade_of(evidence([450] * 4, noise=150)) is None


def test_errors_of_clocks_hide_a_delay() -> None:
    assert grade_of(evidence([1500] * 4, clock=1600)) is None


def test_one_of_many_must_stand_out_more() -> None:
    """GIVEN a delay that is sure among eight ranks THEN it is not among thousands: one is as late by chance."""
    found = evidence([800] * 4, noise=200)
    assert (grade_of(found, ranks=8), grade_of(found, ranks=100_000)) == ("sure", None)


def test_bursts_of_one_of_many_ranks_may_explain_a_delay_in_three_steps() -> None:
    """GIVEN 128 candidates, each with bursts of 6 % of a step THEN 13 % of one of them are likely, and 16 % are sure:

    128 * 0.05 * 0.3 ** 2 * exp(-2 * 0.14 / 0.06) is 0.005.
    """
    assert grade_of(evidence([1300] * 3, peers=63), ranks=64) == "likely"
    assert grade_of(evidence([1600] * 3, peers=63), ranks=64) == "sure"
    assert grade_of(evidence([1300] * 6, peers=63), ranks=64) == "sure"
    assert grade_of(evidence([1300] * 3, peers=3), ranks=4) == "sure"


@pytest.mark.parametrize(
    ("size", "last_arrivals", "expected"),
    [
        (500, LastArrivals(5, 8, 1 / 8), "likely"),
        (500, LastArrivals(1, 8, 1 / 8), None),  # a burst does that
        (500, LastArrivals(5, 8, 1 / 2), None),  # in groups of two it comes last every other time
        (100, LastArrivals(8, 8, 1 / 8), None),
    ],
)
def test_one_step_is_likely_if_the_rank_comes_last_again_and_again(
    size: int, last_arrivals: LastArrivals, expected: Certainty | None
) -> None:
    assert grade_of(evidence([size], noise=10, last_arrivals=last_arrivals)) == expected


@pytest.mark.parametrize(
    ("found", "lack"),
    [
        (evidence([150] * 4), "size"),
        (evidence([1500] * 4, noise=1000), "significance"),
        (evidence([1500] * 4, clock=1600), "significance"),
        (evidence([500], noise=10, last_arrivals=LastArrivals(1, 8, 1 / 8)), "another step"),
        (evidence([1500, 1500, 1500, 0, 0]), "persistence"),
        (replace(evidence([1500] * 4), peers_ns=np.array([[0, 0, 0, 0, 0, 0, 100_000]] * 4)), "distance"),
        (evidence([1500] * 4), None),
    ],
)
def test_what_keeps_a_rank_from_being_named_is_known(found: Evidence, lack: str | None) -> None:
    steps = len(found.series_ns)
    grading = Grading(step_ns=STEP_NS, candidates=16, ranks=8, steps=steps)
    assert grading.lacks(found, "likely") == lack


def test_students_distribution_is_that_of_tables() -> None:
    """Source: the table of Abramowitz and Stegun, 26.10."""
    assert student_quantile(0.9995, 12) == pytest.approx(4.318, rel=0.005)
    assert student_quantile(0.975, 30) == pytest.approx(2.042, rel=0.001)
    assert student_tail(4.318, 12) == pytest.approx(0.0005, rel=0.02)
    assert student_tail(2.042, 30) == pytest.approx(0.025, rel=0.01)
