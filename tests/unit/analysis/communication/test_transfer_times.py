"""The duration of transfers, from the times of two ranks by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tracekit.analysis.communication.transfer_times import transfer_times
from tracekit.model.communication import KINDS


def transfer(kind: str, start: list[int], end: list[int], took: list[int], error: int | None = 0) -> int:
    """Return the transfer of one collective of ranks that start and end at these times on the run's clock."""
    columns = (np.array([[value] for value in values]) for values in (start, end, took))
    known = np.ones((len(start), 1), dtype=np.bool_)
    return int(transfer_times(*columns, np.array([KINDS.index(kind)]), known, error)[0])


def test_a_transfer_lasts_as_long_as_the_part_of_the_rank_that_begins_last() -> None:
    assert transfer("all_reduce", [100, 160], [260, 261], [160, 101]) == 101


def test_of_ranks_that_the_clocks_cannot_tell_apart_the_shorter_part_counts() -> None:
    assert transfer("all_reduce", [100, 110], [200, 220], [100, 110], error=5) == 110
    assert transfer("all_reduce", [100, 110], [200, 220], [100, 110], error=10) == 100
    assert transfer("all_reduce", [100, 900], [200, 220], [100, 70], error=None) == 70


@pytest.mark.parametrize(("error", "expected"), [(0, 90), (None, 30)])
def test_where_ranks_leave_early_the_last_end_counts(error: int | None, expected: int) -> None:
    """GIVEN a gather whose sender leaves 30 after it came, last, and whose root ends 90 after that."""
    assert transfer("gather", [100, 160], [250, 190], [150, 30], error) == expected


def test_a_rank_that_is_missing_counts_for_nothing() -> None:
    start, end, took = (np.array([[a], [b]]) for a, b in ((100, 0), (150, 0), (50, 0)))
    known = np.array([[True], [False]])
    assert transfer_times(start, end, took, np.array([KINDS.index("all_reduce")]), known, 0).tolist() == [50]
