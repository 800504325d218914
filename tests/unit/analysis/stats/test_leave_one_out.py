"""Medians and majorities of the other ranks, as the standard library computes them."""

from __future__ import annotations

import statistics

import numpy as np
import pytest

from tracekit.analysis.stats.leave_one_out import leave_one_out_medians, majority_excluding, median_excluding
from tracekit.model.events import Bool, Int64


def expected_median(values: Int64, known: Bool, excluded: int) -> int:
    """Return the median of one row without the excluded rank, rounded down; 0 without other known values."""
    others = [int(value) for rank, value in enumerate(values) if known[rank] and rank != excluded]
    return int(statistics.median(others) // 1) if others else 0


def test_the_slow_rank_does_not_count_for_itself() -> None:
    """GIVEN ranks that take 10, 20, 31 and 900 THEN the other three of the last rank have the median 20."""
    values = np.array([[10, 20, 31, 900]])
    known = np.ones((1, 4), dtype=np.bool_)

    assert leave_one_out_medians(values, known).tolist() == [[31, 31, 20, 20]]
    assert median_excluding(values, known, np.array([3])).tolist() == [20]


def test_an_even_number_of_others_gives_the_middle_rounded_down() -> None:
    values, known = np.array([[5, 10, 15]]), np.ones((1, 3), dtype=np.bool_)

    assert leave_one_out_medians(values, known).tolist() == [[12, 10, 7]]


def test_a_rank_alone_has_no_others() -> None:
    values, known = np.array([[5, 9], [5, 9]]), np.array([[True, False], [True, True]])

    assert median_excluding(values, known, np.array([0, 1])).tolist() == [0, 5]
    assert leave_one_out_medians(values, known)[:, 0].tolist() == [0, 9]


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7, 8])
def test_medians_are_those_of_the_standard_library(ranks: int) -> None:
    """GIVEN 200 instances with equal, negative and unknown values THEN all medians without one rank are exact."""
    rng = np.random.default_rng(ranks)
    values = rng.integers(-3, 4, (200, ranks)) * rng.choice([1, 10**15], (200, 1))
    known = rng.random((200, ranks)) < 0.8
    known[np.arange(200), excluded := rng.integers(0, ranks, 200)] = True

    one = median_excluding(values, known, excluded)
    every = leave_one_out_medians(values, known)

    expected = [[expected_median(values[row], known[row], rank) for rank in range(ranks)] for row in range(200)]
    assert one.tolist() == [expected[row][excluded[row]] for row in range(200)]
    assert every.tolist() == expected


def test_the_majority_of_the_others_wins() -> None:
    """GIVEN hashes of four ranks, of which one is excluded THEN the value that two of the other three have."""
    values = np.array([[4, 9, 9, 1], [9, 4, 9, 9], [7, 7, 7, 7]])
    known = np.ones((3, 4), dtype=np.bool_)

    assert majority_excluding(values, known, np.array([0, 1, 2])).tolist() == [9, 9, 7]
