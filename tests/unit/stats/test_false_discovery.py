"""Adjusted p-values: the example of Benjamini and Hochberg, and how many false discoveries they leave."""

from __future__ import annotations

import numpy as np
import pytest

from tracekit.comparison.comparison import adjusted_p_values

# Table 1 of their article: 15 comparisons, of which four are discoveries at 5 %.
PUBLISHED = [
    *(0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262, 0.5719, 0.6528, 0.7590),
    1.0,
]


def test_the_published_example_has_four_discoveries() -> None:
    adjusted = adjusted_p_values(np.array(PUBLISHED))
    assert (adjusted <= 0.05).sum() == 4
    assert adjusted[3] == pytest.approx(0.0095 * 15 / 4)
    assert adjusted[-1] == 1.0


def test_they_rise_with_the_p_value_and_never_beyond_1() -> None:
    p_values = np.sort(np.random.default_rng(2).uniform(size=40))
    adjusted = adjusted_p_values(p_values)
    assert (np.diff(adjusted) >= 0).all()
    assert (adjusted >= p_values).all()
    assert adjusted.max() <= 1.0


def test_nothing_has_no_p_values() -> None:
    assert adjusted_p_values(np.array([])).tolist() == []
