"""Quartiles of groups, against those of numpy."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tracekit.analysis.stats.uncertainty import quartiles


def test_the_quartiles_are_values_of_the_group() -> None:
    low, median, high = quartiles(np.array([9, 1, 5, 3, 7, 40, 20]), np.array([0, 0, 0, 0, 0, 1, 1]))

    assert (low.tolist(), median.tolist(), high.tolist()) == ([3, 20], [5, 30], [7, 40])


@given(st.lists(st.lists(st.integers(0, 1000), min_size=1, max_size=9), min_size=1, max_size=4))
def test_each_group_has_the_quartiles_that_it_has_alone(groups: list[list[int]]) -> None:
    values = np.concatenate([np.array(group, dtype=np.int64) for group in groups])
    group = np.repeat(np.arange(len(groups)), [len(each) for each in groups])

    low, median, high = quartiles(values, group)

    assert low.tolist() == [int(np.quantile(each, 0.25, method="lower")) for each in groups]
    assert median.tolist() == [int(np.floor(np.median(each))) for each in groups]
    assert high.tolist() == [int(np.quantile(each, 0.75, method="higher")) for each in groups]
