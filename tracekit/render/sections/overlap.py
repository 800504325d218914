"""How much communication compute hides, by kind, phase and group."""

from __future__ import annotations

from tracekit.analysis.communication.overlap import Overlap
from tracekit.analysis.communication.sections import OVERLAP_SECTION
from tracekit.analysis.table import rows_of
from tracekit.model.quantities import file_size, milliseconds
from tracekit.render.console import table
from tracekit.render.section_view import SectionView

__all__ = ["OVERLAP_VIEW"]


def _communication_table(overlap: Overlap) -> list[object]:
    rows = [
        (
            row["kind"],
            row["phase"] or "n/a",
            row["group"] or "n/a",
            f"{row['count']:.3g}",
            "n/a" if row["size_bytes"] is None else file_size(row["size_bytes"]),
            milliseconds(row["total_ns"]),
            milliseconds(row["exposed_ns"]),
            f"{row['worst_rank']}: {milliseconds(row['worst_exposed_ns'])}",
        )
        for row in rows_of(overlap, "by_kind")
    ]
    columns = ("kind", "phase", "group", "count", "size", "total", "exposed", "worst\nrank")
    return table("Communication (ms a step, mean over the ranks that take part)", columns, rows, left=3)


OVERLAP_VIEW = SectionView(
    section=OVERLAP_SECTION,
    json=lambda result: {"communication": rows_of(result, "communication")},
    text=lambda result, run, width: _communication_table(result) if rows_of(result, "by_kind") else [],
)
