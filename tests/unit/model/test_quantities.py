"""Times, sizes and counts as text."""

from __future__ import annotations

import pytest

from tracekit.model.quantities import count_text, file_size, milliseconds


def test_milliseconds_have_two_digits() -> None:
    assert [milliseconds(ns) for ns in (0, 1_234_567, 12_345_678_900)] == ["0.00", "1.23", "12,345.68"]


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (1536, "1.54 kB"), (2.5e9, "2.5 GB"), (123e12, "123 TB")],
)
def test_sizes_have_decimal_units_and_three_digits(size_bytes: float, text: str) -> None:
    assert file_size(size_bytes) == text


def test_only_one_is_singular() -> None:
    assert [count_text(number, "rank") for number in (0, 1, 2, 1024)] == ["0 ranks", "1 rank", "2 ranks", "1,024 ranks"]
    assert [count_text(number, "batch", "batches") for number in (1, 2)] == ["1 batch", "2 batches"]
