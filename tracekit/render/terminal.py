"""The report for a terminal: the answer in one screen, the tables of some sections, or everything.

Times are milliseconds a step, means over complete steps.
"""

from __future__ import annotations

from typing import Literal

from tracekit.explain.section import Unavailable
from tracekit.explain.step_time.step_lengths import mean_step_ns
from tracekit.render.answer import answer, finding_lines, finding_text
from tracekit.render.console import headline, next_command, note_lines, statement, write
from tracekit.render.sections.lines import overhead_text
from tracekit.render.sections.text import ORDER, TITLES, section_text
from tracekit.report.report import Report

Extent = Literal["answer", "verdict", "sections", "full"]
_FINDINGS_OF_VERDICT = 3


def terminal_text(report: Report, *, width: int = 80, color: bool = False, extent: Extent = "full") -> str:
    """Return a report as text of `width` characters; `color` writes ANSI styles.

    extent: the answer alone, its findings without pictures, the tables of the sections that were asked for, or all
        findings, tables and notes.
    """
    if extent == "answer":
        blocks: list[object] = [*answer(report, width)]
    elif extent == "verdict":
        blocks = _verdict(report, width)
    elif extent == "sections":
        blocks = [headline(report.run, width), "", *_tables(report, width)]
    else:
        blocks = _full(report, width)
    return write(blocks, width=width, color=color)


def _verdict(report: Report, width: int) -> list[object]:
    blocks: list[object] = [headline(report.run, width), ""]
    for number, finding in enumerate(report.findings[:_FINDINGS_OF_VERDICT], start=1):
        blocks += finding_lines(number, finding, mean_step_ns(report.run), width)
    return blocks


def _full(report: Report, width: int) -> list[object]:
    run = report.run
    step_ns = mean_step_ns(run)
    blocks: list[object] = [headline(run, width), ""]
    blocks += [statement(f.severity, finding_text(f, step_ns), leading=i == 0) for i, f in enumerate(report.findings)]
    if grave := [note for note in run.notes if note.severity != "info"]:
        blocks += ["", *note_lines(grave)]
    blocks += ["", *_tables(report, width)]
    if cost := overhead_text(run):
        blocks.append(statement("info", cost))
    blocks += note_lines([note for note in run.notes if note.severity == "info"])
    return [*blocks, "", next_command("merge", run, "-o", "run.pftrace")]


def _tables(report: Report, width: int) -> list[object]:
    blocks: list[object] = []
    for section in ORDER:
        if (result := report.result(section)) is not None:
            blocks += section_text(section, result, report.run, width)
    return blocks + _unavailable(report)


def _unavailable(report: Report) -> list[object]:
    """Return why sections have no result, a line a reason, but for questions that do not arise for this run."""
    titles: dict[str, list[str]] = {}
    for section in ORDER:
        missing = report.results.get(section.name)
        if isinstance(missing, Unavailable) and not missing.expected:
            titles.setdefault(missing.reason, []).append(TITLES.get(section.name, section.name))
    return [statement("info", f"{', '.join(names)} n/a: {reason}") for reason, names in titles.items()]
