"""Depths of a forest, by hand."""

from __future__ import annotations

import numpy as np

from tracekit.analysis.stats.connected_components import deepest_first


def test_items_come_deepest_first_and_roots_are_left_out() -> None:
    """GIVEN 0 <- 1 <- 2 <- 3, 1 <- 4, and 5 alone."""
    levels = deepest_first(np.array([-1, 0, 1, 2, 1, -1]))
    assert [sorted(level.tolist()) for level in levels] == [[3], [2, 4], [1]]


def test_without_predecessors_there_are_no_levels() -> None:
    assert deepest_first(np.array([-1, -1])) == []
    assert deepest_first(np.empty(0, dtype=np.int64)) == []
