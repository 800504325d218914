"""Ratios, differences and growth of costs, from planted costs."""

from __future__ import annotations

import pytest

from benchmarks.measuring.samples import doublings, one_more, ratios, spread


def test_a_spread_is_the_median_and_its_range():
    found = spread([3.0, 1.0, 2.0])
    assert (found.median, found.low, found.high, found.count) == (2.0, 1.0, 3.0, 3)


def test_a_ratio_is_computed_in_each_round():
    # In the second round the machine was twice as slow, which does not change the ratio.
    assert ratios([50.0, 100.0], [1.0, 2.0]) == [50.0, 50.0]


def test_noisy_rounds_are_left_out():
    assert ratios([50.0, 50.0, -1.0], [1.0, -0.1, 1.0]) == [50.0]


def test_one_more_rank_excludes_the_start():
    start, a_rank = 5.0, 0.4
    one, eight = [start + a_rank] * 2, [start + 8 * a_rank] * 2
    assert one_more(one, eight, 8) == pytest.approx([a_rank, a_rank])


def test_linear_growth_doubles_once_the_empty_command_is_taken_off():
    costs = {size: [0.7 + 0.1 * size] for size in (1, 2, 4, 8)}
    assert doublings(costs, [0.7]) == {2: pytest.approx([2]), 4: pytest.approx([2]), 8: pytest.approx([2])}


def test_quadratic_growth_is_seen():
    costs = {size: [0.7 + 0.1 * size**2] for size in (4, 8)}
    assert doublings(costs, [0.7]) == {8: pytest.approx([4])}


def test_growth_needs_sizes_that_double():
    with pytest.raises(ValueError, match="8 is not twice 2"):
        doublings({2: [1.0], 8: [4.0]}, [0.0])
