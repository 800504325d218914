"""A report as Markdown, for the description or a comment of a pull request: the findings, and tables that fold.

Text of a run is escaped, so that it is neither markup, nor a link, nor a mention of a person or an issue.
"""

from __future__ import annotations

import re

from tracekit.explain.diagnosis.tables import CAUSES
from tracekit.explain.step_time.sections import BREAKDOWN_SECTION
from tracekit.explain.step_time.step_lengths import mean_step_ns
from tracekit.explain.step_time.tables import RANKS
from tracekit.explain.whatif.tables import WHATIF
from tracekit.findings.finding import Finding
from tracekit.model.table import rows_of
from tracekit.model.texts import safe_text, shortened
from tracekit.render.answer import finding_facts, open_options, sentences
from tracekit.render.console import command_line, headline
from tracekit.render.grid import Grid, grid_of
from tracekit.render.sections.text import cause_rows, change_rows
from tracekit.report.report import Report
from tracekit.report.shown_ranks import ranks_to_show

_SHOWN_FINDINGS = 5
_SHOWN_RANKS = 16
_ALL = "the report"
_MOST_CHARACTERS = 600  # of one text
_WIDTH = 200  # of the headline
# Underscores within words are none, and full stops and brackets cannot be where our lines have text.
_MARKUP = re.compile(r"([\\`*\[\]<>|~$&]|(?<![0-9A-Za-z])_|_(?![0-9A-Za-z])|:(?=//)|(?<=www)\.)")
_MENTION = re.compile(r"(@|#)(?=\w)")


def report_markdown(report: Report) -> str:
    """Return the report as GitHub-flavoured Markdown."""
    name, *facts = headline(report.run, _WIDTH).plain.split("\n")
    lines = [f"### {markdown_text(name)}", "", *(f"{markdown_text(fact)}  " for fact in facts), ""]
    step_ns = mean_step_ns(report.run)
    for number, finding in enumerate(report.findings[:_SHOWN_FINDINGS], 1):
        lines += _finding_lines(number, finding, step_ns)
    if more := len(report.findings) - _SHOWN_FINDINGS:
        lines += [f"{more} more finding{'s' * (more > 1)}.", ""] if more > 0 else []
    lines += _rank_table(report)
    causes = [] if report.diagnosis is None else cause_rows(report.diagnosis)
    lines += folded_table(grid_of(CAUSES, causes, all_by=_ALL))
    lines += folded_table(grid_of(WHATIF, [] if report.whatif is None else change_rows(report.whatif)))
    grave = [note.text for note in report.run.notes if note.severity != "info"]
    lines += markdown_folded("What is missing or was repaired", [f"* {markdown_text(text)}" for text in grave])
    command = command_line("open", report.run, *open_options(report))
    return "\n".join([*lines, f"Look at it: {markdown_code(command)}", ""])


def markdown_text(text: str) -> str:
    """Return text that shows in Markdown as it is, in one line. What is very long ends in an ellipsis."""
    text = safe_text(" ".join(text.split()))
    text = shortened(text, _MOST_CHARACTERS)
    # GitHub looks for mentions and issues after it has removed backslashes: an empty comment parts them.
    return _MENTION.sub(r"\1<!-- -->", _MARKUP.sub(r"\\\1", text))


def markdown_code(text: str) -> str:
    """Return text as a span of code, with as many backticks around it as it needs."""
    text = safe_text(text)
    ticks = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    return f"{ticks} {text} {ticks}" if "`" in text else f"{ticks}{text}{ticks}"


def markdown_table(grid: Grid) -> list[str]:
    """Return the lines of a table."""
    heads, *rows = [[markdown_text(cell.strip()) for cell in row] for row in (grid.heads, *grid.rows)]
    marks = ["---" if left else "---:" for left in grid.left]
    return [f"| {' | '.join(row)} |" for row in (heads, marks, *rows)]


def folded_table(grid: Grid) -> list[str]:
    """Return a table that a reader opens by its title; nothing without rows."""
    return markdown_folded(markdown_text(grid.title), markdown_table(grid) if grid.rows else [])


def _finding_lines(number: int, finding: Finding, step_ns: float) -> list[str]:
    facts = sentences(finding_facts(finding, step_ns))
    text = f"{number}. **{markdown_text(finding.text)}**"
    return [*([f"{text}  ", f"   {markdown_text(facts)}"] if facts else [text]), ""]


def markdown_folded(title: str, content: list[str]) -> list[str]:
    """Return lines that a reader opens; nothing without content."""
    return [f"<details><summary>{title}</summary>", "", *content, "", "</details>", ""] if content else []


def _rank_table(report: Report) -> list[str]:
    shown = set(ranks_to_show(report, _SHOWN_RANKS))
    result = report.result(BREAKDOWN_SECTION)
    rows = [] if result is None else rows_of(result, "ranks")
    grid = grid_of(RANKS, [row for row in rows if row["rank"] in shown and row["steps"]], total=len(rows), all_by=_ALL)
    return folded_table(grid)
