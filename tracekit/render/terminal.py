"""The report for a terminal: the verdict, what is missing or damaged, tables, the next command.

Times are milliseconds a step, means over complete steps.
"""

from __future__ import annotations

from dataclasses import dataclass

from tracekit.analysis.report import Report
from tracekit.analysis.section import Unavailable
from tracekit.render.console import headline, next_command, note_lines, statement, write
from tracekit.render.overhead_line import overhead_text
from tracekit.render.section_views import VIEWS

__all__ = ["TerminalReport"]


@dataclass(frozen=True, kw_only=True)
class TerminalReport:
    """Renders a report as text of `width` characters; `color` writes ANSI styles."""

    width: int = 80
    color: bool = False

    suffix = ".txt"

    def render(self, report: Report) -> str:
        run = report.run
        parts: list[object] = [headline(run), ""]
        parts += [statement(f.severity, f.text, leading=i == 0) for i, f in enumerate(report.findings)]
        if grave := [note for note in run.notes if note.severity != "info"]:
            parts += ["", *note_lines(grave)]
        parts.append("")
        for view in VIEWS:
            if (result := report.result(view.section)) is not None:
                parts += view.text(result, run, self.width)
        parts += _unavailable(report)
        if cost := overhead_text(run):
            parts.append(statement("info", cost))
        parts += note_lines([note for note in run.notes if note.severity == "info"])
        parts += ["", next_command("merge", run, "-o", "run.pftrace")]
        return write(parts, width=self.width, color=self.color)


def _unavailable(report: Report) -> list[object]:
    """Return why sections have no result, a line a reason, but for questions that do not arise for this run."""
    titles: dict[str, list[str]] = {}
    for view in VIEWS:
        missing = report.results.get(view.section.name)
        if isinstance(missing, Unavailable) and not missing.expected:
            titles.setdefault(missing.reason, []).append(view.title or view.section.name)
    return [statement("info", f"{', '.join(names)} n/a: {reason}") for reason, names in titles.items()]
