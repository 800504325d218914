"""Dimensions of the mesh in the terminal: what each one's communication costs."""

from __future__ import annotations

from tracekit.analysis.communication.mesh_dimensions import MeshDimensions
from tracekit.analysis.communication.sections import DIMENSIONS_SECTION
from tracekit.analysis.table import rows_of
from tracekit.model.quantities import milliseconds
from tracekit.render.console import table
from tracekit.render.section_view import SectionView

__all__ = ["DIMENSIONS_VIEW", "dimension_table"]


def dimension_table(dimensions: MeshDimensions) -> list[object]:
    rows = rows_of(dimensions, "by_name")
    title = "Dimensions of the mesh (ms a step, mean over ranks)"
    if any(row["inferred"] for row in rows):
        title += "; *: inferred"
    cells = [
        (
            f"{row['dimension'] or 'n/a'}{'*' * row['inferred']}",
            "n/a" if row["group_size"] is None else str(row["group_size"]),
            "n/a" if row["hosts"] is None else str(row["hosts"]),
            milliseconds(row["total_ns"]),
            milliseconds(row["exposed_ns"]),
            f"{row['share']:.0%}",
            "n/a" if row["waiting_ratio"] is None else f"{row['waiting_ratio']:.0%}",
            f"{row['worst_rank']}: {milliseconds(row['worst_exposed_ns'])}",
        )
        for row in rows
    ]
    columns = ("group", "ranks", "hosts", "total", "exposed", "of\nstep", "late\nranks", "worst\nrank")
    return table(title, columns, cells)


DIMENSIONS_VIEW = SectionView(
    section=DIMENSIONS_SECTION,
    json=lambda result: {
        "dimensions": rows_of(result, "by_rank"),
        "dimensions_by_name": rows_of(result, "by_name"),
    },
    text=lambda result, run, width: dimension_table(result) if rows_of(result, "by_name") else [],
)
