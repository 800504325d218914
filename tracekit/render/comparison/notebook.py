"""A comparison as a fragment of HTML that a notebook shows: one screen."""

from __future__ import annotations

from tracekit.analysis.comparison.comparison import Comparison
from tracekit.analysis.table import rows_of
from tracekit.model.quantities import milliseconds
from tracekit.render.comparison.texts import (
    advice_text,
    cause_text,
    causes_title,
    explored_text,
    noise_text,
    remark_text,
    run_text,
    runs_text,
    signed_milliseconds,
    verdict_text,
)
from tracekit.render.notebook.screen import CELL, TABLE, html_text, screen

__all__ = ["comparison_screen"]

_SHOWN = 5


def comparison_screen(comparison: Comparison) -> str:
    """Return the verdict, the runs, the largest causes of the change, where to look, and what to type next."""
    sentences = [noise_text(comparison), advice_text(comparison), remark_text(comparison)]
    standing_out = [row for row in rows_of(comparison, "explored") if row["stands_out"]][:_SHOWN]
    look = f"look at (exploratory): {' · '.join(map(explored_text, standing_out))}" if standing_out else None
    lines = [
        f"baseline: {runs_text(comparison.baselines)}",
        f"candidate: {run_text(comparison.candidate)}",
        *(sentence for sentence in (*sentences, look) if sentence),
    ]
    return screen(
        f"<div><b>{html_text(verdict_text(comparison))}</b></div>",
        *(f"<div>{html_text(line)}</div>" for line in lines),
        _causes(comparison),
        "<div>Next: <code>comparison.tables</code>, <code>comparison.write('compare.html')</code></div>",
    )


def _causes(comparison: Comparison) -> str:
    names = (f"{causes_title(comparison)} (ms)", "baseline", "candidate", "change")
    rows = rows_of(comparison, "causes")
    head = "".join(f"<th {CELL}>{html_text(name)}</th>" for name in names)
    body = ""
    for row in rows[:_SHOWN]:
        times = [milliseconds(row["baseline_ns"]), milliseconds(row["candidate_ns"])]
        cells = [html_text(cause_text(row)), *times, signed_milliseconds(row["change_ns"])]
        body += f"<tr>{''.join(f'<td {CELL}>{cell}</td>' for cell in cells)}</tr>"
    more = len(rows) - _SHOWN
    also = f"<div>{more} more: <code>comparison.causes</code></div>" if more > 0 else ""
    return f"{TABLE}<tr>{head}</tr>{body}</table>{also}"
