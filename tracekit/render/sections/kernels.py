"""Kernels and operators, in the terminal and as JSON."""

from __future__ import annotations

from tracekit.analysis.events.kernel_names import function_of_kernel
from tracekit.analysis.kernels.kernels import Kernels
from tracekit.analysis.kernels.sections import KERNELS_SECTION
from tracekit.analysis.table import rows_of
from tracekit.model.quantities import milliseconds
from tracekit.render.console import table
from tracekit.render.section_view import SectionView

_SHOWN = 8
_LONGEST_NAME = 32

__all__ = ["KERNELS_VIEW", "kernel_tables"]


def kernel_tables(result: Kernels) -> list[object]:
    """Return the kernels and the operators with the most time."""
    return [*_table(result, "kernels", "total_ns"), *_table(result, "operators", "self_ns")]


def _table(result: Kernels, name: str, by: str) -> list[object]:
    rows = sorted(rows_of(result, name), key=lambda row: -row[by])
    if not rows:
        return []
    title = f"{name.capitalize()} with the most {by.removesuffix('_ns')} time (ms a step)"
    if len(rows) > _SHOWN:
        title += f"; {_SHOWN} of {len(rows)}, --json has all"
    cells = [
        (
            _short(row["name"]),
            f"{row['count']:,.4g}",
            *(milliseconds(row[column]) for column in ("total_ns", "self_ns", "exposed_ns")),
            f"{row['worst_rank']} ({milliseconds(row['worst_total_ns'])})",
        )
        for row in rows[:_SHOWN]
    ]
    return table(title, ("name", "count", "total", "self", "exposed", "worst rank"), cells)


def _short(name: str) -> str:
    name = function_of_kernel(name).rpartition("::")[2] if "<" in name or "(" in name else name
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"


KERNELS_VIEW = SectionView(
    section=KERNELS_SECTION,
    json=lambda result: {"kernels": rows_of(result, "kernels"), "operators": rows_of(result, "operators")},
    text=lambda result, run, width: kernel_tables(result),
)
