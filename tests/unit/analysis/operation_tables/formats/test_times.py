"""Times of tables in integer nanoseconds."""

from __future__ import annotations

import pandas as pd
import pytest

from tracekit.analysis.operation_tables.formats.times import UnreadableValueError, integers, nanoseconds


def test_every_digit_of_a_text_counts() -> None:
    """Seconds since 1970 with nanoseconds have 19 digits, of which a float keeps 16."""
    texts = pd.Series(["1700000000.123456789", "-0.5", ".25", "3.", "1e-3"], dtype=object)
    assert nanoseconds(texts, "s").tolist() == [
        1_700_000_000_123_456_789,
        -500_000_000,
        250_000_000,
        3_000_000_000,
        1_000_000,
    ]


def test_numbers() -> None:
    assert nanoseconds(pd.Series([1_700_000_000_123_456]), "us").tolist() == [1_700_000_000_123_456_000]
    assert nanoseconds(pd.Series([1.5, 2.25]), "ms").tolist() == [1_500_000, 2_250_000]


@pytest.mark.parametrize("value", ["", "soon", "nan", "inf", "1e30"])
def test_a_value_that_is_no_time_is_named_by_its_row(value: str) -> None:
    with pytest.raises(UnreadableValueError) as refused:
        nanoseconds(pd.Series(["1", value], dtype=object), "s")
    assert refused.value.row == 1


def test_whole_numbers_and_empty_fields() -> None:
    assert integers(pd.Series(["1", "", "3.0"], dtype=object), missing=-1).tolist() == [1, -1, 3]
    for value in ("", "1.5", "x"):
        with pytest.raises(UnreadableValueError):
            integers(pd.Series(["1", value], dtype=object))
