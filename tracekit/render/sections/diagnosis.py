"""The causes of the step and the critical path, in the terminal and as JSON."""

from __future__ import annotations

from typing import Any

from tracekit.analysis.diagnosis.critical_path import CriticalPath
from tracekit.analysis.diagnosis.diagnosis import Diagnosis
from tracekit.analysis.diagnosis.sections import CRITICAL_PATH_SECTION, DIAGNOSIS_SECTION
from tracekit.analysis.table import rows_of
from tracekit.model.quantities import milliseconds
from tracekit.model.ranks import ranks_text
from tracekit.render.console import table
from tracekit.render.section_view import SectionView

__all__ = [
    "CRITICAL_PATH_VIEW",
    "DIAGNOSIS_VIEW",
    "causes_table",
    "critical_path_table",
    "diagnosis_dict",
    "where_text",
]

_SHOWN_CAUSES = 8
_SHOWN_PARTS = 6
_NOTABLE = 0.01  # of the step, or of the chain


def diagnosis_dict(diagnosis: Diagnosis) -> dict[str, Any] | None:
    """Return the section of the JSON contract; None without steps that all ranks completed on comparable clocks."""
    if not diagnosis.steps:
        return None
    causes = rows_of(diagnosis, "causes")
    return {"step_ns": diagnosis.step_ns, "steps": diagnosis.steps, "causes": causes}


def causes_table(diagnosis: Diagnosis) -> list[object]:
    """Return what the time of the mean step goes to, the longest first."""
    rows = rows_of(diagnosis, "causes")
    shown = [row for row in rows if row["time_ns"] >= _NOTABLE * diagnosis.step_ns][:_SHOWN_CAUSES]
    title = f"What the step of {diagnosis.step_ns / 1e6:.2f} ms goes to, along the longest chain over all ranks (ms)"
    if len(shown) < len(rows):
        title += f"; {len(shown)} of {len(rows)} rows, --json has all"
    cells = [
        (
            row["cause"].replace("_", " "),
            where_text(row),
            milliseconds(row["time_ns"]),
            f"{row['time_ns'] / diagnosis.step_ns:.0%}",
        )
        for row in shown
    ]
    return table(title, ("cause", "where", "time", "share"), cells, left=2)


def where_text(row: dict[str, Any]) -> str:
    """Return where a cause of the step is: ranks, group, module, phase, as far as known."""
    ranks = row["ranks"]
    named = ranks_text(ranks) if ranks else None
    of_transfer = f"{row['kind']} ({row['group']})" if row["group"] else row["kind"]
    return ", ".join(part for part in (named, of_transfer, row["module"], row["phase"]) if part)


def critical_path_table(path: CriticalPath) -> list[object]:
    """Return what bounds the steps, the longest first."""
    rows = rows_of(path, "parts")
    shown = [row for row in rows if row["share"] >= _NOTABLE][:_SHOWN_PARTS]
    title = "What bounds the step: the longest chain over all ranks (ms a step)"
    if len(shown) < len(rows):
        title += f"; {len(shown)} of {len(rows)} rows, --json has all"
    cells = [
        (
            str(row["rank"]),
            row["kind"].replace("_", " "),
            row["name"] if row["kind"] == "communication" else f"before {row['name']}",
            milliseconds(row["total_ns"] / path.steps),
            f"{row['share']:.0%}",
        )
        for row in shown
    ]
    return table(title, ("rank", "what", "where", "time", "share"), cells, left=3)


DIAGNOSIS_VIEW = SectionView(
    section=DIAGNOSIS_SECTION,
    json=lambda result: {"diagnosis": diagnosis_dict(result)},
    text=lambda result, run, width: causes_table(result) if result.steps else [],
    null_keys=("diagnosis",),
)
CRITICAL_PATH_VIEW = SectionView(
    section=CRITICAL_PATH_SECTION,
    json=lambda result: {"critical_path": rows_of(result, "parts")},
    text=lambda result, run, width: critical_path_table(result) if rows_of(result, "parts") else [],
)
