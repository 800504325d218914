"""A comparison in one screen of at most 24 lines: the verdict, what the change consists of, where to look."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.analysis.comparison.comparison import Comparison
from tracekit.analysis.table import rows_of
from tracekit.model.quantities import milliseconds
from tracekit.render.answer import wrapped_lines
from tracekit.render.comparison.texts import (
    advice_text,
    cause_text,
    causes_title,
    difference_text,
    explored_text,
    line_of,
    noise_text,
    remark_text,
    run_text,
    runs_text,
    signed_milliseconds,
    verdict_text,
)
from tracekit.render.console import next_command, write
from tracekit.render.safe_text import safe_text

if TYPE_CHECKING:
    from rich.text import Text

__all__ = ["comparison_lines", "comparison_text"]

_SHOWN_CAUSES = 5
_SHOWN_EXPLORED = 5
_SHOWN_DIFFERENCES = 5
_NUMBERS = 36  # columns of three numbers
_LEAST_SHARE = 0.0005  # of the step: less prints as no change


def comparison_text(comparison: Comparison, *, width: int, color: bool) -> str:
    return write(comparison_lines(comparison, width), width=width, color=color)


def comparison_lines(comparison: Comparison, width: int) -> list[object]:
    """Return the lines, none of them longer than `width` but for the command, which a shell takes in one piece."""
    blank = _text("")
    lines: list[object] = [
        _text(line_of("baseline", runs_text(comparison.baselines), width)),
        _text(line_of("candidate", run_text(comparison.candidate), width)),
        blank,
        *wrapped_lines(verdict_text(comparison), "", width, 2, "bold"),
        *wrapped_lines(noise_text(comparison), "", width, 2, ""),
    ]
    if advice := advice_text(comparison):
        lines += wrapped_lines(advice, "", width, 2, "")
    if remark := remark_text(comparison):
        lines += wrapped_lines(remark, "! ", width, 2, "yellow")
    lines += [blank, *_cause_lines(comparison, width), blank]
    standing_out = [row for row in rows_of(comparison, "explored") if row["stands_out"]]
    if standing_out:
        shown = " · ".join(map(explored_text, standing_out[:_SHOWN_EXPLORED]))
        lines += wrapped_lines(f"(exploratory) {shown}", "look at    ", width, 2, "")
    if differences := rows_of(comparison, "differences"):
        shown = " · ".join(map(difference_text, differences[:_SHOWN_DIFFERENCES]))
        lines += wrapped_lines(shown, "differs    ", width, 2, "")
    return [*lines, next_command("analyze", comparison.candidate)]


def _cause_lines(comparison: Comparison, width: int) -> list[Text]:
    rows = rows_of(comparison, "causes")
    least_ns = _LEAST_SHARE * comparison.baseline_ns
    notable = [row for row in rows if abs(row["change_ns"]) >= least_ns] or rows
    shown = notable[:_SHOWN_CAUSES]
    lines = [_columns(f"{causes_title(comparison)} (ms)", "baseline", "candidate", "change", width, "bold")]
    lines += [_row(cause_text(row), row, width) for row in shown]
    rest = [row for row in rows if row not in shown]
    if rest:
        sums = {name: sum(row[name] for row in rest) for name in ("baseline_ns", "candidate_ns", "change_ns")}
        lines.append(_row(f"{len(rest)} more (--json)", sums, width))
    return lines


def _row(what: str, row: dict[str, Any], width: int) -> Text:
    numbers = (milliseconds(row["baseline_ns"]), milliseconds(row["candidate_ns"]))
    return _columns(what, *numbers, signed_milliseconds(row["change_ns"]), width)


def _columns(what: str, baseline: str, candidate: str, change: str, width: int, style: str = "") -> Text:
    room = max(min(width, 100) - _NUMBERS, 20)
    label = safe_text(what)
    label = label if len(label) <= room else f"{label[: room - 1]}…"
    return _text(f"{label:{room}}{baseline:>12}{candidate:>12}{change:>12}", style)


def _text(text: str, style: str = "") -> Text:
    from rich.text import Text

    return Text(text, style=style)
