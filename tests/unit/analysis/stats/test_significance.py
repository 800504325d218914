"""What the mean of a few values must exceed."""

from __future__ import annotations

import pytest

from tracekit.analysis.stats.significance import least_significant


@pytest.mark.parametrize(("count", "least"), [(1, 40.0), (4, 20.0), (16, 10.0), (100, 10.0)])
def test_it_is_four_standard_errors_and_at_least_a_standard_deviation(count: int, least: float) -> None:
    assert least_significant(10.0, count) == least
