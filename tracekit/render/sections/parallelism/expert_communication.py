"""Dispatch and combine of expert parallelism, in the terminal. Times are ms a step."""

from __future__ import annotations

from typing import Any

from tracekit.analysis.model_parallel.expert_communication import ExpertCommunication
from tracekit.analysis.table import rows_of
from tracekit.model.quantities import file_size, milliseconds
from tracekit.render.console import table

__all__ = ["expert_communication_tables"]

_SHOWN = 16


def expert_communication_tables(communication: ExpertCommunication) -> list[object]:
    """Return a row for each direction, phase and microbatch; nothing without expert parallelism."""
    rows = rows_of(communication, "means")
    if not rows:
        return []
    title = "Tokens to experts and back (ms a step, mean over the ranks that take part)"
    if len(rows) > _SHOWN:
        title += f"; {_SHOWN} of {len(rows)} rows, --json has all"
    labelled = any(row["microbatch"] is not None for row in rows)
    columns = ["", "phase", *["micro-\nbatch"] * labelled, "count", "size", "total", "hidden", "exposed", "worst\nrank"]
    cells = [_cells(row, labelled=labelled) for row in rows[:_SHOWN]]
    return table(title, columns, cells, left=2)


def _cells(row: dict[str, Any], *, labelled: bool) -> list[str]:
    microbatch = ["n/a" if row["microbatch"] is None else str(row["microbatch"])] * labelled
    hidden = f"{row['overlapped_ns'] / row['total_ns']:.0%}" if row["total_ns"] else "n/a"
    return [
        row["direction"],
        row["phase"] or "n/a",
        *microbatch,
        f"{row['count']:.3g}",
        "n/a" if row["size_bytes"] is None else file_size(row["size_bytes"]),
        milliseconds(row["total_ns"]),
        hidden,
        milliseconds(row["exposed_ns"]),
        f"{row['worst_rank']}: {milliseconds(row['worst_exposed_ns'])}",
    ]
