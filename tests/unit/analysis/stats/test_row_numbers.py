"""Numbers of rows: equal for equal rows, without gaps."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tracekit.analysis.stats.rows_by_pair import number_rows


@given(st.lists(st.tuples(st.integers(-1, 2), st.integers(0, 2**40), st.integers(0, 1)), min_size=1, max_size=12))
def test_rows_have_one_number_exactly_if_they_are_equal(rows: list[tuple[int, int, int]]) -> None:
    numbers = number_rows(*np.array(rows, dtype=np.int64).T)

    assert sorted(set(numbers.tolist())) == list(range(len(set(rows))))
    assert len(set(zip(rows, numbers.tolist(), strict=True))) == len(set(rows))


def test_rows_are_numbered_in_their_order() -> None:
    assert number_rows(np.array([5, 1, 5, 1]), np.array([0, 7, 0, 3])).tolist() == [2, 1, 2, 0]
