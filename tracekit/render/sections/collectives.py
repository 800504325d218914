"""Collectives over ranks in the terminal: skew, wait, transfer, bandwidth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tracekit.analysis.communication.collectives import CollectiveTimes
from tracekit.analysis.communication.sections import COLLECTIVES_SECTION
from tracekit.analysis.table import rows_of
from tracekit.model.communication import GroupKey
from tracekit.model.quantities import file_size, milliseconds
from tracekit.model.run import Run
from tracekit.render.console import table
from tracekit.render.section_view import SectionView

_SHOWN = 12

__all__ = ["COLLECTIVES_VIEW", "collectives_table"]


def collectives_table(collectives: CollectiveTimes, run: Run) -> list[object]:
    """Return a row for each kind and size of collectives.

    Of groups with one name (those of a dimension of the mesh), the one with the longest transfers is shown.
    """
    slowest: dict[tuple[object, ...], dict[str, Any]] = {}
    for row in rows_of(collectives, "table"):
        key = (_name(row, run), row["kind"], row["size_bytes"])
        if key not in slowest or row["transfer_p50_ns"] > slowest[key]["transfer_p50_ns"]:
            slowest[key] = row
    rows = list(slowest.items())
    title = "Collectives over ranks (ms; skew: first to last arrival)"
    if any(not row["significant"] for _, row in rows[:_SHOWN]):
        title += "; n.s.: below the clocks' uncertainty"
    if len(rows) > _SHOWN:
        title += f"; {_SHOWN} of {len(rows)} rows, --json has all"
    with_queues = any(row["queued_p50_ns"] for _, row in rows[:_SHOWN])
    cells = [
        (
            row["kind"],
            str(name),
            "n/a" if row["size_bytes"] is None else file_size(row["size_bytes"]),
            str(row["count"]),
            _significant(row["skew_p50_ns"]),
            _significant(row["skew_max_ns"]),
            _significant(row["wait_mean_ns"]),
            *((_significant(row["queued_p50_ns"]),) if with_queues else ()),
            milliseconds(row["transfer_p50_ns"]),
            "n/a" if row["busbw_bps"] is None else f"{row['busbw_bps'] / 1e9:.3g}",
        )
        for (name, _, _), row in rows[:_SHOWN]
    ]
    columns = (
        *("kind", "group", "size", "count", "skew\np50", "skew\nmax", "wait\nmean"),
        *(("queued",) if with_queues else ()),
        *("trans-\nfer", "bus\nGB/s"),
    )
    return table(title, columns, cells, left=2)


def _name(row: Mapping[str, Any], run: Run) -> str:
    group: GroupKey = run.groups[row["group"]]
    return group.label or "all"


def _significant(time_ns: int | None) -> str:
    return "n.s." if time_ns is None else milliseconds(time_ns)


COLLECTIVES_VIEW = SectionView(
    section=COLLECTIVES_SECTION,
    json=lambda result: {"collectives": rows_of(result, "table")},
    text=lambda result, run, width: collectives_table(result, run) if rows_of(result, "table") else [],
)
