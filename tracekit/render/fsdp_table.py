"""FSDP's modules in the terminal: what waits for which module's parameters and gradients."""

from __future__ import annotations

from typing import Any

from tracekit.analysis.fsdp import Fsdp
from tracekit.render.console import file_size, milliseconds, table
from tracekit.schema import records

_SHOWN = 12
_LONGEST_NAME = 19  # with it the table is 80 columns wide

__all__ = ["fsdp_table"]


def fsdp_table(fsdp: Fsdp) -> list[object]:
    rows: list[dict[str, Any]] = records(fsdp.by_module)
    title = "FSDP modules, the most exposed first (ms a step, mean over ranks)"
    if len(rows) > _SHOWN:
        title += f"; {_SHOWN} of {len(rows)} rows, --json has all"
    cells = [
        (
            "n/a" if row["module"] is None else _shortened(row["module"] or "<root>"),
            row["kind"],
            row["phase"] or "n/a",
            f"{row['count']:.3g}",
            "n/a" if row["size_bytes"] is None else file_size(row["size_bytes"]),
            milliseconds(row["exposed_ns"]),
            "n/a" if row["prefetch_ns"] is None else milliseconds(row["prefetch_ns"]),
        )
        for row in rows[:_SHOWN]
    ]
    columns = ("module", "kind", "phase", "count", "size", "exposed", "issue\nto use")
    return table(title, columns, cells, left=3)


def _shortened(name: str) -> str:
    """The end of a long name, which tells modules apart."""
    return name if len(name) <= _LONGEST_NAME else "…" + name[1 - _LONGEST_NAME :]
