"""The report as Markdown: what it says, and that names of a run are neither markup nor mentions."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.unit.render.files.reports import hostile_report
from tracekit.render.files.markdown import markdown_code, markdown_table, markdown_text, report_markdown
from tracekit.render.grid import Grid


def test_names_of_a_run_are_neither_markup_nor_mentions(tmp_path: Path) -> None:
    text = report_markdown(hostile_report(tmp_path / "run"))
    assert "HYPERLINK" in text
    assert "<img" not in text.replace("\\<img", "")
    assert not re.search(r"[@#]\w", text)
    assert not set(text) & set("\x1b\u202e\r")
    assert all(line.count("|") - line.count("\\|") in (0, 5, 8) for line in text.splitlines())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("layers.0.weight_scale", "layers.0.weight_scale"),
        ("_private_ *b*", "\\_private\\_ \\*b\\*"),
        ("a|b [c](d) `e`", "a\\|b \\[c\\](d) \\`e\\`"),
        ("see http://x.org www.x.org", "see http\\://x.org www\\.x.org"),
        ("two\nlines\t", "two lines"),
        ("&lt; $x$", "\\&lt; \\$x\\$"),
        ("x" * 2000, "x" * 599 + "…"),
    ],
)
def test_text_shows_as_it_is(text: str, expected: str) -> None:
    assert markdown_text(text) == expected


def test_a_span_of_code_has_enough_backticks() -> None:
    assert markdown_code("tracekit open runs/") == "`tracekit open runs/`"
    assert markdown_code("a ``b`` c") == "``` a ``b`` c ```"


def test_a_table_aligns_its_numbers() -> None:
    grid = Grid(title="Times", heads=("what", "ms"), left=(True, False), rows=[("a|b", "1")])
    assert markdown_table(grid) == ["| what | ms |", "| --- | ---: |", "| a\\|b | 1 |"]
