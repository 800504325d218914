"""A comparison for people: in one screen of a terminal or of a notebook, as Markdown, and written to a file."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.comparison.comparison import Comparison
from tracekit.comparison.tables import CAUSE_CHANGES, EXPLORED_CHANGES, RUN_DIFFERENCES
from tracekit.errors import UsageError
from tracekit.model.table import rows_of
from tracekit.model.texts import safe_text
from tracekit.render.answer import wrapped_lines
from tracekit.render.comparison.document import (
    advice_text,
    cause_rows,
    causes_title,
    comparison_html,
    comparison_json,
    difference_text,
    explored_text,
    noise_text,
    remark_text,
    run_text,
    runs_text,
    verdict_text,
)
from tracekit.render.console import next_command, text_line, write
from tracekit.render.grid import grid_of

if TYPE_CHECKING:
    from rich.text import Text


SUFFIXES = (".html", ".json", ".md", ".txt")
_SHOWN_CAUSES = 5
_SHOWN_EXPLORED = 5
_SHOWN_DIFFERENCES = 5
_MOST_LINES = 3  # of a note, and of what stands out or differs; the verdict is never cut
_NUMBERS = 36  # columns of three numbers
_LEAST_SHARE = 0.0005  # of the step: less prints as no change


def render_comparison(comparison: Comparison, suffix: str) -> str:
    """Return the comparison in the format of a suffix, one of `SUFFIXES`."""
    renderers = {".html": comparison_html, ".json": comparison_json, ".md": comparison_markdown}
    return renderers[suffix](comparison) if suffix in renderers else comparison_text(comparison, width=80, color=False)


def write_comparison(comparison: Comparison, path: Path, *, force: bool = False) -> None:
    """Write the comparison to a file. Raises UsageError for a name without a known suffix, and OutputError."""
    from tracekit.render.output import new_file

    if path.suffix not in SUFFIXES:
        raise UsageError(f"{path}: the name does not end in {', '.join(SUFFIXES)}", hint="it says the format")
    with new_file(path, force=force) as stream:
        stream.write(render_comparison(comparison, path.suffix).encode())


def comparison_text(comparison: Comparison, *, width: int, color: bool) -> str:
    return write(_lines(comparison, width), width=width, color=color)


def _lines(comparison: Comparison, width: int) -> list[object]:
    """Return the lines, none of them longer than `width` but for the command, which a shell takes in one piece."""
    blank = text_line("")
    lines: list[object] = [
        *wrapped_lines(runs_text(comparison.baselines), "baseline   ", width, 2, ""),
        *wrapped_lines(run_text(comparison.candidate), "candidate  ", width, 2, ""),
        blank,
        *wrapped_lines(verdict_text(comparison), "", width, None, "bold"),
        *wrapped_lines(noise_text(comparison), "", width, None, ""),
    ]
    if advice := advice_text(comparison):
        lines += wrapped_lines(advice, "", width, None, "")
    if remark := remark_text(comparison):
        lines += wrapped_lines(remark, "! ", width, _MOST_LINES, "yellow")
    lines += [blank, *_cause_lines(comparison, width), blank]
    if standing_out := _standing_out(comparison):
        shown = " · ".join(map(explored_text, standing_out[:_SHOWN_EXPLORED]))
        lines += wrapped_lines(f"(exploratory) {shown}", "look at    ", width, _MOST_LINES, "")
    if differences := rows_of(comparison, "differences"):
        shown = " · ".join(map(difference_text, differences[:_SHOWN_DIFFERENCES]))
        lines += wrapped_lines(shown, "differs    ", width, _MOST_LINES, "")
    return [*lines, next_command("analyze", comparison.candidate)]


def _standing_out(comparison: Comparison) -> list[dict[str, Any]]:
    return [row for row in rows_of(comparison, "explored") if row["stands_out"]]


def _cause_lines(comparison: Comparison, width: int) -> list[Text]:
    """Return the largest causes, and all others in one row."""
    rows = cause_rows(comparison)
    least_ns = _LEAST_SHARE * comparison.baseline_ns
    shown = ([row for row in rows if abs(row["change_ns"]) >= least_ns] or rows)[:_SHOWN_CAUSES]
    if rest := [row for row in rows if row not in shown]:
        sums = {name: sum(row[name] for row in rest) for name in ("baseline_ns", "candidate_ns", "change_ns")}
        shown.append({"label": f"{len(rest)} more (--json)"} | sums)
    grid = grid_of(CAUSE_CHANGES, shown)
    room = max(min(width, 100) - _NUMBERS, 20)

    def lines(cells: Sequence[str], style: str = "") -> list[Text]:
        what, *numbers = cells
        first, *more = textwrap.wrap(safe_text(what), room, subsequent_indent="  ")
        numbered = f"{first:{room}}" + "".join(f"{cell:>12}" for cell in numbers)
        return [text_line(text, style) for text in (numbered, *more)]

    head = lines([f"{causes_title(comparison)} (ms)", *grid.heads[1:]], "bold")
    return [*head, *(line for row in grid.rows for line in lines(row))]


def comparison_markdown(comparison: Comparison) -> str:
    """Return GitHub-flavoured Markdown: the verdict, the runs, causes, what stands out, and what else differs."""
    from tracekit.render.files.markdown import folded_table, markdown_table, markdown_text

    sentences = [verdict_text(comparison), noise_text(comparison), advice_text(comparison), remark_text(comparison)]
    first, *others = [markdown_text(sentence) for sentence in sentences if sentence]
    lines = [f"### {first}", "", *(f"{text}  " for text in others), ""]
    lines += [f"Baseline: {markdown_text(runs_text(comparison.baselines))}  "]
    lines += [f"Candidate: {markdown_text(run_text(comparison.candidate))}", ""]
    causes = grid_of(CAUSE_CHANGES, cause_rows(comparison))
    lines += [f"{causes.title}:", "", *markdown_table(causes), ""]
    lines += folded_table(grid_of(EXPLORED_CHANGES, _standing_out(comparison)))
    lines += folded_table(grid_of(RUN_DIFFERENCES, rows_of(comparison, "differences")))
    return "\n".join(lines).rstrip("\n") + "\n"


def comparison_screen(comparison: Comparison) -> str:
    """Return a fragment of HTML: the verdict, the runs, the largest causes, where to look, and what to type next."""
    from tracekit.render.notebook.screen import html_table, html_text, screen

    sentences = [noise_text(comparison), advice_text(comparison), remark_text(comparison)]
    standing_out = _standing_out(comparison)[:_SHOWN_EXPLORED]
    look = f"look at (exploratory): {' · '.join(map(explored_text, standing_out))}" if standing_out else None
    lines = [
        f"baseline: {runs_text(comparison.baselines)}",
        f"candidate: {run_text(comparison.candidate)}",
        *(sentence for sentence in (*sentences, look) if sentence),
    ]
    rows = cause_rows(comparison)
    more = len(rows) - _SHOWN_CAUSES
    return screen(
        f"<div><b>{html_text(verdict_text(comparison))}</b></div>",
        *(f"<div>{html_text(line)}</div>" for line in lines),
        html_table(grid_of(CAUSE_CHANGES, rows[:_SHOWN_CAUSES])),
        f"<div>{more} more: <code>comparison.causes</code></div>" if more > 0 else "",
        "<div>Next: <code>comparison.tables</code>, <code>comparison.write('compare.html')</code></div>",
    )
