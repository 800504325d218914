"""The answer in one screen: what ran, what slows it, what to do, and what to type next.

It has at most 30 lines at 80 columns, for any number of ranks. `tracekit analyze --full` prints every table below it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tracekit.explain.attempts import ATTEMPTS_SECTION
from tracekit.explain.step_time.step_lengths import mean_step_ns
from tracekit.findings.catalogue import NEXT_LIMITS
from tracekit.findings.finding import Finding
from tracekit.model.notes import Note
from tracekit.model.run import Run, format_ranges, ranks_text
from tracekit.model.texts import count_text, safe_text
from tracekit.render.console import headline, next_command, text_line
from tracekit.render.picture import draw_picture
from tracekit.render.sections.job import attempts_text
from tracekit.report.report import Report
from tracekit.report.shown_ranks import SHOWN_RANKS, ranks_to_show, step_to_show
from tracekit.report.step_picture import step_picture

if TYPE_CHECKING:
    from rich.text import Text


LINES = 30
_SHOWN_FINDINGS = 3
_LEAST_ROWS = 4
_LATE_AND_WAITING = 2  # rows: whoever is late, and who waits for it
_BESIDE_ROWS = 5  # legend, scale, arrow, how many there are
_INDENT = 3
_CLEARLY_MORE = 1.1
_ENOUGH_STEPS = 10  # for a verdict
_MOST_LINES = 6  # of a note, which may list files; a claim and its remedy are never cut


def answer(report: Report, width: int) -> list[Text]:
    """Return the lines, none of them longer than `width` but for the command, which a shell takes in one piece."""
    run = report.run
    command = next_command("report", run)
    head = list(headline(run, width).split())
    for line in head:
        line.truncate(width, overflow="ellipsis")
    if (attempts := report.result(ATTEMPTS_SECTION)) is not None:
        head += wrapped_lines(attempts_text(attempts), "", width, None, "")
    tail = [*_notes(run, width), command]
    tail_lines = len(tail) - 1 + -(-len(command) // width)
    has_steps = any(step.complete for summary in run.ranks for step in summary.steps)
    least_rows = min(len(run.ranks), _LEAST_ROWS) + _BESIDE_ROWS + 1 if has_steps else 0
    room = LINES - len(head) - tail_lines - 2 - least_rows
    findings = _findings(report.findings, mean_step_ns(run), width, room)
    used = len(head) + 1 + len(findings) + 1 + tail_lines + 1
    rows = max(min(SHOWN_RANKS, LINES - used - _BESIDE_ROWS), _LATE_AND_WAITING)
    servers = [summary.rank for summary in run.ranks if summary.serves_only]
    drawn: list[Text] = []
    while (picture := step_picture(report, rows)) is not None:
        drawn = draw_picture(picture, len(run.ranks), width, servers)
        rows, excess = min(rows, len(picture.rows)), used + len(drawn) - LINES
        if excess <= 0 or rows <= _LATE_AND_WAITING:
            break
        rows = max(rows - excess, _LATE_AND_WAITING)  # a narrow legend has several lines
    blank = text_line("")
    return [*head, blank, *findings, *([blank, *drawn] if drawn else []), blank, *tail]


def _findings(findings: Sequence[Finding], step_ns: float, width: int, room: int) -> list[Text]:
    """Return the lines of the first findings, at most `room`, and how many there are besides."""
    lines: list[Text] = []
    shown = 0
    for finding in findings[:_SHOWN_FINDINGS]:
        of_finding = finding_lines(shown + 1, finding, step_ns, width)
        others = len(findings) > shown + 1
        if shown and len(lines) + len(of_finding) + others > room:
            break
        lines += of_finding
        shown += 1
    if shown < len(findings):
        rest = len(findings) - shown
        lines.append(text_line(f"{' ' * _INDENT}{rest} more finding{'s' * (rest > 1)}: --full", "dim"))
    return lines


def finding_lines(number: int, finding: Finding, step_ns: float, width: int) -> list[Text]:
    """Return what is the case, then what it saves, how sure that is, and what to do."""
    lines = wrapped_lines(finding.text, f"{number}. ", width, None, "bold" if number == 1 else "")
    return lines + wrapped_lines(sentences(finding_facts(finding, step_ns)), " " * _INDENT, width, None, "")


def finding_text(finding: Finding, step_ns: float) -> str:
    """Return a finding as one paragraph: what is the case, what it saves, how sure that is, and what to do.

    step_ns: the mean step.
    """
    return sentences([finding.text, *finding_facts(finding, step_ns)])


def sentences(parts: Iterable[str]) -> str:
    """Return parts as sentences, each with a capital letter, without the last full stop."""
    return ". ".join(part[:1].upper() + part[1:] for part in parts)


def finding_facts(finding: Finding, step_ns: float) -> list[str]:
    """Return what a finding saves, how sure that is, and what to do. step_ns: the mean step."""
    facts = [_saving(finding, step_ns), _doubt(finding), finding.action]
    return [fact for fact in facts if fact]


def _doubt(finding: Finding) -> str | None:
    """Return how sure a finding is, and why not, if that is known in few words; None where nothing is to be done."""
    if finding.certainty == "sure":
        return "sure" if finding.severity != "info" and finding.action is not None else None
    error = finding.evidence.get("replay_error")
    if isinstance(error, float):
        return f"likely (the replay is {abs(error):.0%} off the measured step)"
    steps = finding.evidence.get("steps")
    if isinstance(steps, int) and steps < _ENOUGH_STEPS and not finding.evidence.get("missing"):
        return f"likely (only {count_text(steps, 'step')} recorded)"
    return "likely, not sure"


def _saving(finding: Finding, step_ns: float) -> str | None:
    """Return what doing something about a finding saves, by a replay, and what limits that; None without one."""
    limit = NEXT_LIMITS.get(str(finding.evidence.get("next_limit")))
    if finding.saving_ns is None or finding.saving_ns <= 0:
        return None if limit is None else f"saves little until {limit}"
    error = f" ± {(finding.saving_error_ns or 0) / 1e6:.1f}"
    error = "" if error == " ± 0.0" else error  # of one step, or known better than it is printed
    text = f"saves {finding.saving_ns / 1e6:.1f}{error} ms a step ({saving_share_text(finding, step_ns)})"
    return text if limit is None else f"{text}, and no more until {limit}"


def saving_share_text(finding: Finding, step_ns: float) -> str:
    """Return the share of the step that a finding saves. A saving clearly beyond its time needs a word why.

    Of loading that is to be hidden the share is "at most".

    step_ns: the mean step.
    """
    saving_ns = finding.saving_ns or 0
    most = "at most " if finding.remedy == "data" else ""  # workers hide no first batches, and no copies
    share = f"{most}{saving_ns / max(step_ns, 1):.0%}"
    least_ns = saving_ns - (finding.saving_error_ns or 0)
    if "behind_ns" in finding.evidence and finding.time_ns and least_ns > _CLEARLY_MORE * finding.time_ns:
        return f"{share}, with the others' waiting"
    return share


def _notes(run: Run, width: int) -> list[Text]:
    """Return what was missing or repaired, in a line, and how many more notes there are."""
    grave = [note for note in run.notes if note.severity != "info"]
    lines: list[Text] = []
    if run.missing_ranks:
        lines += wrapped_lines(f"{ranks_text(run.missing_ranks)} not found", "! ", width, _MOST_LINES, "yellow")
        grave = [note for note in grave if note.id != "missing-rank"]
    if grave:
        more = len(grave) - 1
        text = _first(grave).text + (f" (and {more} more: --full)" if more else "")
        lines += wrapped_lines(text, "! ", width, _MOST_LINES, "yellow")
    return lines


def _first(notes: Sequence[Note]) -> Note:
    return next((note for note in notes if note.severity == "error"), notes[0])


def open_options(report: Report) -> list[str]:
    """Return the options with which `tracekit open` shows the ranks and the step to look at."""
    run = report.run
    options: list[str] = []
    if run.selected_ranks is None and len(run.ranks) > SHOWN_RANKS:
        options += ["--ranks", format_ranges(ranks_to_show(report, SHOWN_RANKS)).replace(" ", "")]
    if len(run.common_steps()) > 1:
        options += ["--steps", str(step_to_show(report))]
    return options


def wrapped_lines(text: str, prefix: str, width: int, most: int | None, style: str) -> list[Text]:
    """Return a text in lines, the first behind a prefix. What is longer than `most` lines ends in an ellipsis."""
    if not text:
        return []
    lines = textwrap.wrap(
        safe_text(text),
        width=width,
        initial_indent=prefix,
        subsequent_indent=" " * len(prefix),
        max_lines=most,
        placeholder=" ...",
    )
    return [text_line(line, style) for line in lines]
