"""The table of the dimensions of a mesh: milliseconds, shares, and what is not known."""

from __future__ import annotations

from typing import Any

from tracekit.analysis.communication.mesh_dimensions import MeshDimensions
from tracekit.render.console import write
from tracekit.render.sections.parallelism.model_parallel import dimension_table

TENSOR = {
    "dimension": "tp", "inferred": False, "ranks": 8, "group_size": 2, "hosts": 1, "total_ns": 4e6, "exposed_ns": 3e6,
    "share": 0.25, "waiting_ratio": 0.4, "waiting_unknown": None, "worst_rank": 5,
    "worst_exposed_ns": 3.75e6,
}  # fmt: skip
UNKNOWN = TENSOR | {"dimension": None, "group_size": None, "hosts": None, "waiting_ratio": None}


def table_lines(*rows: dict[str, Any]) -> list[str]:
    result = MeshDimensions(by_rank=[], by_name=list(rows), findings=())
    text = write(dimension_table(result), width=80, color=False)
    return [line for line in text.splitlines() if line]


def test_a_row_is_a_dimension() -> None:
    lines = table_lines(TENSOR, UNKNOWN)

    assert "Dimensions of the mesh (ms a step, mean over ranks)" in lines
    known, unknown = (line.split() for line in lines[-2:])
    assert known == ["tp", "2", "1", "4.00", "3.00", "25%", "40%", "5:", "3.75"]
    assert unknown == ["n/a", "n/a", "n/a", "4.00", "3.00", "25%", "n/a", "5:", "3.75"]


def test_an_inferred_dimension_has_a_star_that_the_title_explains() -> None:
    lines = table_lines(TENSOR | {"inferred": True})

    assert "Dimensions of the mesh (ms a step, mean over ranks); *: inferred" in lines
    assert lines[-1].split()[0] == "tp*"
