"""Checkpoints, evaluation and logging, in the terminal and as JSON."""

from __future__ import annotations

from tracekit.analysis.pauses.pauses import Pauses
from tracekit.analysis.pauses.sections import PAUSES_SECTION
from tracekit.analysis.table import rows_of
from tracekit.model.quantities import milliseconds
from tracekit.render.console import table
from tracekit.render.section_view import SectionView

__all__ = ["PAUSES_VIEW"]


def _table(result: Pauses) -> list[object]:
    rows = [
        (
            str(row["rank"]),
            row["pause"] if row["action"] is None else f"{row['action']} ({row['function']})",
            f"{row['steps']} of {row['of_steps']}",
            milliseconds(row["each_ns"]),
            "-" if row["others_wait_ns"] is None else milliseconds(row["others_wait_ns"]),
            row["wait_kind"] or "-",
        )
        for row in rows_of(result, "ranks")
    ]
    heads = ("rank", "pause", "steps", "each", "others wait", "in")
    return table("Checkpoints, evaluation and logging (ms in a step that has them)", heads, rows) if rows else []


PAUSES_VIEW = SectionView(
    section=PAUSES_SECTION,
    json=lambda result: {"pauses": rows_of(result, "ranks")},
    text=lambda result, run, width: _table(result),
)
