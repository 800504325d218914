"""Rows of values and of pairs, by hand."""

from __future__ import annotations

import numpy as np

from tracekit.analysis.stats.rows_by_pair import rows_by_pair, rows_by_value


def test_rows_of_a_pair_keep_their_order() -> None:
    found = rows_by_pair(np.array([3, 1, 3, 1, 3]), np.array([0, 2, 0, 3, 1]))

    assert {pair: rows.tolist() for pair, rows in found.items()} == {
        (1, 2): [1],
        (1, 3): [3],
        (3, 0): [0, 2],
        (3, 1): [4],
    }


def test_without_rows_there_are_no_pairs() -> None:
    assert rows_by_pair(np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int32)) == {}


def test_rows_of_a_value_keep_their_order() -> None:
    found = rows_by_value(np.array([3, 1, 3, 0, 3], dtype=np.int32))

    assert {value: rows.tolist() for value, rows in found.items()} == {0: [3], 1: [1], 3: [0, 2, 4]}
    assert rows_by_value(np.empty(0, dtype=np.int32)) == {}
