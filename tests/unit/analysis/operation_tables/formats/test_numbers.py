"""What a stranger wrote as a number: read exactly, or refused in a few words."""

from __future__ import annotations

import math

import pytest

from tracekit.analysis.operation_tables.formats.numbers import (
    LARGEST,
    LONGEST_NS,
    UnreadableNumberError,
    decimal,
    time_ns,
    whole_number,
)


def test_numbers_are_read_exactly() -> None:
    assert [whole_number(value) for value in ("7", " 7.0 ", 7, 7.0, LARGEST)] == [7, 7, 7, 7, LARGEST]
    assert [decimal(value) for value in ("201.34", 2, 0.5)] == [201.34, 2.0, 0.5]
    assert time_ns("0" * 5000 + "1." + "5" + "0" * 5000, "ms") == 1_500_000
    assert time_ns(LONGEST_NS // 1000, "us") == LONGEST_NS


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("9" * 5000, "9999999999999999999999999999999999999999... is out of range"),
        pytest.param(10**5000, "a number of thousands of digits is out of range", id="an integer of 5000 digits"),
        (2**70, "1180591620717411303424 is out of range"),
        ("1e999", "1e999 is out of range"),
        ("nan", "'nan' is not a number"),
        (math.inf, "'inf' is not a number"),
        ("1.2.3", "'1.2.3' is not a number"),
        ([1], r"'\[1\]' is not a number"),
        ("", "the field is empty"),
        (None, "the field is empty"),
    ],
)
def test_what_is_no_number_in_range_is_refused_in_a_few_words(value: object, reason: str) -> None:
    for read in (whole_number, decimal, lambda value: time_ns(value, "ns")):
        with pytest.raises(UnreadableNumberError) as refused:
            read(value)
        assert len(str(refused.value)) < 100
    with pytest.raises(UnreadableNumberError, match=reason):
        whole_number(value)


def test_bounds_are_named() -> None:
    with pytest.raises(UnreadableNumberError, match=r"^0 is out of range \(at least 1\)$"):
        whole_number("0", least=1)
    with pytest.raises(UnreadableNumberError, match=r"^9 is out of range \(at most 8\)$"):
        whole_number(9, most=8)
    with pytest.raises(UnreadableNumberError, match=r"^1\.5 is not an integer$"):
        whole_number("1.5")
    with pytest.raises(UnreadableNumberError, match=r"^5e\+18 ms is beyond 4e\+09 s$"):
        time_ns("5e+18", "ms")
