"""Where each rank's time goes, by rank and step."""

from __future__ import annotations

from typing import Any

from tracekit.analysis.step_time.breakdown import Breakdown
from tracekit.analysis.step_time.sections import BREAKDOWN_SECTION
from tracekit.analysis.table import rows_of
from tracekit.render.console import table
from tracekit.render.quantities import milliseconds
from tracekit.render.section_view import SectionView

__all__ = ["BREAKDOWN_VIEW"]

_MOST_RANKS = 16
_SHOWN_RANKS = 8  # where there are more


def _breakdown_table(breakdown: Breakdown) -> list[object]:
    ranks = rows_of(breakdown, "ranks")
    slowest_first = sorted(ranks, key=lambda row: -_mean(row, "step_ns"))
    shown = sorted(slowest_first[: _SHOWN_RANKS if len(ranks) > _MOST_RANKS else None], key=lambda row: row["rank"])
    title = "Where each rank's time goes (ms a step, mean of its complete steps)"
    if len(shown) < len(ranks):
        title += f"; the {len(shown)} slowest of {len(ranks)} ranks, --json has all"
    columns = ("rank", "step", "compute", "exposed\ncomm", "exposed\ncopy", "idle", "overlap")
    return table(title, columns, [_breakdown_row(row) for row in shown])


def _breakdown_row(row: dict[str, Any]) -> tuple[str, ...]:
    if not row["steps"]:
        return (str(row["rank"]), *["n/a"] * 6)
    parts = [
        f"{milliseconds(_mean(row, part))} {row[part] / max(row['step_ns'], 1):>4.0%}"
        for part in ("compute_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns")
    ]
    overlap = "n/a" if row["overlap_ratio"] is None else f"{row['overlap_ratio']:.2%}"
    return (str(row["rank"]), milliseconds(_mean(row, "step_ns")), *parts, overlap)


def _mean(row: dict[str, Any], part: str) -> float:
    return float(row[part] / row["steps"]) if row["steps"] else 0.0


BREAKDOWN_VIEW = SectionView(
    section=BREAKDOWN_SECTION,
    json=lambda result: {"ranks": rows_of(result, "ranks"), "steps": rows_of(result, "steps")},
    text=lambda result, run, width: _breakdown_table(result),
)
