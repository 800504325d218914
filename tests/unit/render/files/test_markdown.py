"""The report as Markdown: what it says, and that names of a run are neither markup nor mentions."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.builders import TraceBuilder, write_run
from tests.unit.render.files.reports import hostile_report, recorded_report
from tracekit.analysis.report import analyze
from tracekit.analysis.table import rows_of
from tracekit.render.files.markdown import markdown_code, markdown_table, markdown_text, report_markdown
from tracekit.render.grid import Grid


def test_a_report_has_the_verdict_first_and_tables_that_fold() -> None:
    report = recorded_report()
    text = report_markdown(report)
    lines = text.splitlines()
    assert lines[0].startswith("### ")
    assert "2 of 2 ranks" in lines[2]
    first = next(line for line in lines if line.startswith("1. "))
    assert first.startswith("1. **rank 1 computes 13% longer than its peer, which waits for it**")
    assert text.count("<details>") == text.count("</details>") == 3
    assert "| rank 1 at its peers' median | 18.31 | ± 1.88 | 10% |" in text
    assert lines[-1].startswith("Look at it: `tracekit open ")


def test_a_table_that_is_cut_says_so(tmp_path: Path) -> None:
    """GIVEN 20 ranks THEN the table of 16 of them says that it has not all, and that of the causes neither."""
    ranks = [TraceBuilder(rank, 20).step(0, 0, 100).kernel("gemm", 0, 60, launched_at=0) for rank in range(20)]
    for trace in ranks:
        trace.nccl("all_reduce", 60, 30, launched_at=1)
    text = report_markdown(analyze(write_run(tmp_path, ranks)))
    assert "; 16 of 20 rows, the report has all</summary>" in text
    causes = len(rows_of(recorded_report().diagnosis, "causes"))
    assert f" of {causes} rows, the report has all</summary>" in report_markdown(recorded_report())


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
