"""A report as Markdown, for the description or a comment of a pull request: the findings, and tables that fold.

Text of a run is escaped, so that it is neither markup, nor a link, nor a mention of a person or an issue.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tracekit.analysis.report import Report
from tracekit.analysis.step_time.step_lengths import mean_step_ns
from tracekit.analysis.table import rows_of
from tracekit.findings.finding import Finding
from tracekit.model.quantities import milliseconds
from tracekit.model.safe_text import safe_text
from tracekit.render.answer import finding_facts, open_options
from tracekit.render.console import command_line, headline
from tracekit.render.rank_bars import bars, ranks_to_show
from tracekit.render.sections.diagnosis import where_text

__all__ = ["markdown_code", "markdown_folded", "markdown_table", "markdown_text", "report_markdown"]

_SHOWN_FINDINGS = 5
_SHOWN_RANKS = 16
_SHOWN_CAUSES = 10
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
    lines += _cause_table(report)
    lines += markdown_folded("What each change would save", _change_table(report))
    grave = [note.text for note in report.run.notes if note.severity != "info"]
    lines += markdown_folded("What is missing or was repaired", [f"* {markdown_text(text)}" for text in grave])
    command = command_line("open", report.run, *open_options(report))
    return "\n".join([*lines, f"Look at it: {markdown_code(command)}", ""])


def markdown_text(text: str) -> str:
    """Return text that shows in Markdown as it is, in one line. What is very long ends in an ellipsis."""
    text = safe_text(" ".join(text.split()))
    text = f"{text[: _MOST_CHARACTERS - 1]}…" if len(text) > _MOST_CHARACTERS else text
    # GitHub looks for mentions and issues after it has removed backslashes: an empty comment parts them.
    return _MENTION.sub(r"\1<!-- -->", _MARKUP.sub(r"\\\1", text))


def markdown_code(text: str) -> str:
    """Return text as a span of code, with as many backticks around it as it needs."""
    text = safe_text(text)
    ticks = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    return f"{ticks} {text} {ticks}" if "`" in text else f"{ticks}{text}{ticks}"


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1) -> list[str]:
    """Return the lines of a table. The first `left` columns are text, the others numbers."""
    marks = ["---" if at < left else "---:" for at in range(len(columns))]
    cells = [[markdown_text(cell) for cell in row] for row in (columns, *rows)]
    lines = [f"| {' | '.join(row)} |" for row in cells]
    return [lines[0], f"| {' | '.join(marks)} |", *lines[1:]]


def _finding_lines(number: int, finding: Finding, step_ns: float) -> list[str]:
    facts = "; ".join(finding_facts(finding, step_ns))
    text = f"{number}. **{markdown_text(finding.text)}**"
    return [*([f"{text}  ", f"   {markdown_text(facts)}"] if facts else [text]), ""]


def markdown_folded(title: str, content: list[str]) -> list[str]:
    """Return lines that a reader opens; nothing without content."""
    return [f"<details><summary>{title}</summary>", "", *content, "", "</details>", ""] if content else []


def _rank_table(report: Report) -> list[str]:
    shown = bars(report.run, ranks_to_show(report, _SHOWN_RANKS))
    columns = ("rank", "step (ms)", "compute", "exposed communication", "exposed copies", "idle")
    rows = [(str(bar.rank), milliseconds(bar.step_ns), *(f"{share:.0%}" for share in bar.shares)) for bar in shown]
    title = f"Where each rank's step goes{_of(len(rows), len(report.run.ranks), 'ranks')}"
    return markdown_folded(title, markdown_table(columns, rows) if rows else [])


def _of(shown: int, all_rows: int, what: str) -> str:
    """Return how many rows of a table are shown, behind its title; nothing if all are."""
    return f" ({shown} of {all_rows} {what})" if shown < all_rows else ""


def _cause_table(report: Report) -> list[str]:
    diagnosis = report.diagnosis
    rows = rows_of(diagnosis, "causes") if diagnosis is not None and diagnosis.steps else []
    cells = [
        (
            row["cause"].replace("_", " "),
            where_text(row),
            milliseconds(row["time_ns"]),
            f"{row['time_ns'] / max(diagnosis.step_ns, 1):.0%}",
        )
        for row in rows[:_SHOWN_CAUSES]
    ]
    title = f"What the step goes to{_of(len(cells), len(rows), 'causes')}"
    table = markdown_table(("cause", "where", "time (ms)", "share"), cells, left=2) if cells else []
    return markdown_folded(title, table)


def _change_table(report: Report) -> list[str]:
    changes = () if report.whatif is None else report.whatif.changes
    rows = [
        (
            change.what,
            milliseconds(change.saves_ns_per_step),
            f"± {milliseconds(change.error_ns)}",
            f"{change.share:.0%}",
        )
        for change in changes
    ]
    return markdown_table(("change", "saves (ms a step)", "error", "share"), rows) if rows else []
