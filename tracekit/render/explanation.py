"""Why findings are findings: what an entry of the catalogue means, how it was decided on a run, and who came close."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tracekit.explain.diagnosis.diagnosis import DIAGNOSIS_SECTION
from tracekit.explain.step_time.step_lengths import mean_step_ns
from tracekit.findings.catalogue import Entry
from tracekit.findings.claims import Coverage, coverage
from tracekit.findings.finding import Condition, Finding, Threshold
from tracekit.findings.ranking import reason_for_place
from tracekit.model.table import rows_of
from tracekit.render.answer import wrapped_lines
from tracekit.render.console import headline, write
from tracekit.report.report import Report

if TYPE_CHECKING:
    from rich.text import Text


_CLOSE = 0.25  # of the bound: what reaches less did not come close
_SHOWN_CLOSE = 5
_SAID = 0.005  # of the step: a smaller part rounds to nothing
_DOCS = "docs/findings.md"
_INDENT = "   "


def catalogue_text(entries: Sequence[Entry], *, width: int, color: bool) -> str:
    """Return a line or two for each entry."""
    lines: list[Text] = []
    longest = max(len(each.id) for each in entries)
    for each in entries:
        meaning = each.meaning.partition("\n\n")[0].replace("\n", " ")
        lines += wrapped_lines(meaning, f"{each.id:{longest}}  ", width, None, "")
    lines += wrapped_lines("tracekit explain ID RUN says how it was decided on a run.", "", width, 1, "dim")
    return write(lines, width=width, color=color)


def entry_text(entry: Entry, report: Report | None, *, width: int, color: bool) -> str:
    """Return what an entry means and takes, and an example; with a report, how it was decided there instead."""
    lines = [*wrapped_lines(entry.id, "", width, 1, "bold")]
    for paragraph in entry.meaning.split("\n\n"):
        lines += wrapped_lines(paragraph.replace("\n", " "), _INDENT, width, None, "")
    lines += [line for each in entry.thresholds for line in _line(f"It takes at least {_threshold_text(each)}.", width)]
    if report is None:
        text, action = entry.sentence(entry.example)
        lines += _line(f"For example: {text}", width)
        lines += _line(f"What to do: {action}", width) if action is not None else []
    else:
        lines += _decided(entry, report, width)
    lines += _line(f"{_DOCS}#{entry.id}", width, "dim")
    return write(lines, width=width, color=color)


def _decided(entry: Entry, report: Report, width: int) -> list[Text]:
    """Return how an entry was decided on a run."""
    step_ns = mean_step_ns(report.run)
    lines: list[Text] = [*_line("", width)]
    for number, finding in enumerate(report.findings, start=1):
        if finding.id == entry.id:
            lines += _finding_lines(number, finding, step_ns, width)
            lines += _line(f"{', '.join(f'{name} {value}' for name, value in _numbers(finding))}", width, "dim")
    close = [finding for finding in report.close if finding.id == entry.id]
    if close:
        lines += wrapped_lines("Came close, and why not:", "", width, 1, "bold")
        lines += [line for finding in close for line in _close_lines(finding, width)]
    if len(lines) == 1:
        lines += _line("nothing of this run is a candidate for it", width)
    return lines


def run_text(report: Report, *, width: int, color: bool) -> str:
    """Return what each finding of a run took and why it stands there, what came close, and what is not explained."""
    step_ns = mean_step_ns(report.run)
    lines: list[Text] = [*headline(report.run, width).split(), *_line("", width)]
    for number, finding in enumerate(report.findings, start=1):
        lines += _finding_lines(number, finding, step_ns, width)
    close = [finding for finding in report.close if finding.closeness >= _CLOSE][:_SHOWN_CLOSE]
    if close:
        lines += [*_line("", width), *wrapped_lines("Came close, and why not:", "", width, 1, "bold")]
        lines += [line for finding in close for line in _close_lines(finding, width)]
    if (diagnosis := report.result(DIAGNOSIS_SECTION)) is not None and diagnosis.step_ns:
        covered = coverage(diagnosis.step_ns, rows_of(diagnosis, "causes"), report.findings)
        lines += [*_line("", width), *wrapped_lines(_coverage_text(covered), "", width, None, "")]
    return write(lines, width=width, color=color)


def _finding_lines(number: int, finding: Finding, step_ns: float, width: int) -> list[Text]:
    lines = wrapped_lines(f"{finding.id}: {finding.text}", f"{number}. ", width, None, "bold" if number == 1 else "")
    for condition in finding.conditions:
        lines += _line(_condition_text(condition), width)
    return lines + _line(f"Its place: {reason_for_place(finding, step_ns)}", width)


def _close_lines(finding: Finding, width: int) -> Iterator[Text]:
    yield from wrapped_lines(f"{finding.id}: {finding.text}", "-  ", width, None, "")
    for condition in finding.conditions:
        if not condition.holds:
            yield from _line(_condition_text(condition), width)


def _line(text: str, width: int, style: str = "") -> list[Text]:
    return wrapped_lines(text, _INDENT, width, None, style)


def _condition_text(condition: Condition) -> str:
    amount, bound = (_amount_text(number, condition.unit) for number in (condition.value, condition.bound))
    return f"{condition.what}: {'' if condition.holds else 'only '}{amount} (at least {bound})"


def _threshold_text(threshold: Threshold) -> str:
    return f"{_amount_text(threshold, threshold.unit)} ({threshold.what})"


def _amount_text(amount: float, unit: str) -> str:
    if unit == "share":
        return f"{amount:.1%}"
    return f"{amount:.2f}-fold" if unit == "times" else f"{amount:.3g}"


def _numbers(finding: Finding) -> Iterator[tuple[str, object]]:
    """Yield the plain numbers of the evidence."""
    for name, value in finding.evidence.items():
        if isinstance(value, float):
            yield name, f"{value:.4g}"
        elif isinstance(value, int | str) and name not in {"section", "no_replay"}:
            yield name, value


def _coverage_text(covered: Coverage) -> str:
    def share(time_ns: float) -> str:
        return f"{time_ns / covered.step_ns:.0%}"

    rest_ns = sum(covered.unexplained_ns.values())
    phrases = [
        f"{name} {share(time_ns)}"
        for name, time_ns in covered.unexplained_ns.items()
        if time_ns >= _SAID * covered.step_ns
    ]
    named = f": {', '.join(phrases)}" if phrases else ""
    return (
        f"Of the mean step of {covered.step_ns / 1e6:.1f} ms {share(covered.work_ns)} is compute and copies, findings "
        f"are about {share(covered.found_ns)}, and no finding explains {share(rest_ns)}{named}."
    )
