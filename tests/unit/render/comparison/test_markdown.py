"""The comparison as Markdown: complete, and inert whatever the runs are called."""

from __future__ import annotations

from tests.unit.comparison.compared_runs import STEADY, longer, report_of_steps
from tracekit.api import compare
from tracekit.render.comparison.outputs import comparison_markdown

SLOWER = compare([report_of_steps(STEADY)], report_of_steps(longer(10), path="@team/<b>x</b>|#1"))


def test_the_causes_are_a_table() -> None:
    lines = comparison_markdown(SLOWER).splitlines()
    assert "| compute | 90.00 | 100.00 | +10.00 |" in lines
    assert len({line.count(" | ") for line in lines if line.startswith("| ") and line.count(" | ") == 3}) == 1


def test_names_are_neither_markup_nor_mentions() -> None:
    text = comparison_markdown(SLOWER)
    assert "@team" not in text
    assert "<b>" not in text.replace("\\<b\\>", "")
    assert "#1" not in text
