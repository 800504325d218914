"""Sums of several recordings of a rank."""

from __future__ import annotations

from dataclasses import dataclass

from tracekit.model.summary import sums_part


@dataclass(frozen=True, kw_only=True)
class _Sum:
    kind: str
    count: int
    size_bytes: int | None


def test_rows_of_one_key_are_added_up_and_an_unknown_value_stays_unknown() -> None:
    part = sums_part("sums", _Sum, key=("kind",), amounts=("count", "size_bytes"))
    first = (_Sum(kind="send", count=1, size_bytes=8), _Sum(kind="recv", count=2, size_bytes=None))
    second = (_Sum(kind="recv", count=3, size_bytes=4), _Sum(kind="send", count=4, size_bytes=2))
    assert part.merge([first, second]) == (
        _Sum(kind="send", count=5, size_bytes=10),
        _Sum(kind="recv", count=5, size_bytes=None),
    )
    assert part.empty() == ()
