"""Times, sizes and counts as text."""

from __future__ import annotations

import pytest

from tracekit.model.quantities import count_text, duration, figures, file_size, milliseconds, percent


def test_milliseconds_have_two_digits() -> None:
    assert [milliseconds(ns) for ns in (0, 1_234_567, 12_345_678_900)] == ["0.00", "1.23", "12,345.68"]


def test_a_sign_is_of_what_is_printed() -> None:
    assert [milliseconds(ns, sign="+") for ns in (-4_000, 1_234_567)] == ["+0.00", "+1.23"]
    assert [percent(share, 1, "+") for share in (-0.0004, 0.1234)] == ["+0.0%", "+12.3%"]


def test_a_duration_has_the_unit_that_it_is_said_in() -> None:
    assert [duration(ns) for ns in (12_345, 1_234_000, 2_000_001_000)] == ["12.3 us", "1.234 ms", "2.000001 s"]


def test_numbers_have_three_figures() -> None:
    assert [figures(number) for number in (1234, 1234.5, 12.345, 0.0123, 0.001, 0.0)] == [
        *("1,234", "1,234", "12.3", "0.0123", "<0.01", "0"),
    ]


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (1536, "1.54 kB"), (2.5e9, "2.5 GB"), (123e12, "123 TB")],
)
def test_sizes_have_decimal_units_and_three_digits(size_bytes: float, text: str) -> None:
    assert file_size(size_bytes) == text


def test_only_one_is_singular() -> None:
    assert [count_text(number, "rank") for number in (0, 1, 2, 1024)] == ["0 ranks", "1 rank", "2 ranks", "1,024 ranks"]
    assert [count_text(number, "batch", "batches") for number in (1, 2)] == ["1 batch", "2 batches"]
