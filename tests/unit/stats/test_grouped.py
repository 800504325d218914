"""Values and rows by key."""

from __future__ import annotations

import numpy as np

from tracekit.stats.grouped import grouped, summed
from tracekit.stats.rows_by_key import rows_by_key


def test_values_and_keys_keep_their_order() -> None:
    pairs = [("b", 1), ("a", 2), ("b", 3)]
    assert list(grouped(pairs).items()) == [("b", [1, 3]), ("a", [2])]
    assert list(summed(pairs).items()) == [("b", 4), ("a", 2)]


def test_rows_of_a_combination_ascend_and_so_do_combinations() -> None:
    rows = rows_by_key(np.array([2, 1, 2, 1]), np.array([0, -1, 0, 5]), np.array([7, 7, 7, 7]))
    assert [(key, of_key.tolist()) for key, of_key in rows.items()] == [
        ((1, -1, 7), [1]),
        ((1, 5, 7), [3]),
        ((2, 0, 7), [0, 2]),
    ]
    assert rows_by_key(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)) == {}
