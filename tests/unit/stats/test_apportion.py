"""Whole numbers in proportion to weights."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tracekit.stats.apportion import apportion


@given(
    total=st.integers(0, 10**15),
    weights=st.lists(st.one_of(st.just(0.0), st.floats(1e-6, 1e15)), min_size=1, max_size=30),
)
def test_the_sum_is_exact_and_no_share_is_off_by_one_or_more(total: int, weights: list[float]) -> None:
    actual = apportion(total, np.array(weights))
    assert int(actual.sum()) == total
    assert (actual >= 0).all()
    if sum(weights) > 0:
        shares = total * (np.array(weights) / sum(weights))
        assert (np.abs(actual - shares) <= 1 + 1e-9 * total).all()


def test_the_largest_remainders_get_what_is_left() -> None:
    assert apportion(10, np.array([1.0, 1.0, 1.0])).tolist() == [4, 3, 3]
    assert apportion(10, np.array([4.6, 4.6, 0.8])).tolist() == [5, 4, 1]


def test_without_any_weight_the_first_gets_all() -> None:
    assert apportion(7, np.zeros(3)).tolist() == [7, 0, 0]
    assert apportion(7, np.zeros(0)).tolist() == []
