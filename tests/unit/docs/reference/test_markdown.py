"""Markdown from plain values."""

from __future__ import annotations

from docs.reference.markdown import code, table


def test_a_cell_is_one_line_and_ends_at_no_bar() -> None:
    rows = [("a|b", "two\nlines"), (code("x"), code(""))]

    assert table(("one", "two"), rows).splitlines() == [
        "| one | two |",
        "| --- | --- |",
        r"| a\|b | two lines |",
        "| `x` |  |",
    ]
