"""Sets of ranks or steps as text."""

from __future__ import annotations

import pytest

from tracekit.model.ranks import format_ranges, ranks_text


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([], "none"), ([5], "5"), ([2, 0, 1], "0-2"), ([0, 1, 3, 7, 8], "0-1,3,7-8"), ([0, 2] * 2, "0,2"),
     (range(0, 40, 2), "0,2,4,6,8,10,12,14,...")],
)  # fmt: skip
def test_format_ranges(numbers: list[int], text: str) -> None:
    assert format_ranges(set(numbers)) == text


def test_only_one_rank_is_singular() -> None:
    assert [ranks_text(ranks) for ranks in ([3], [0, 1, 2, 5])] == ["rank 3", "ranks 0-2,5"]
