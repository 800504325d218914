"""Sets of ranks or steps as text."""

from __future__ import annotations

import pytest

from tracekit.model.ranks import format_ranges


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([], "none"), ([5], "5"), ([2, 0, 1], "0-2"), ([0, 1, 3, 7, 8], "0-1,3,7-8"), ([0, 2] * 2, "0,2"),
     (range(0, 40, 2), "0,2,4,6,8,10,12,14,...")],
)  # fmt: skip
def test_format_ranges(numbers: list[int], text: str) -> None:
    assert format_ranges(set(numbers)) == text
