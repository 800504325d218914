"""DDP's buckets for a terminal: what is in each, and when it was ready, queued, on its way and exposed.

Comes in: `Buckets`. Goes out: renderables for `console.write`. Times are milliseconds.
"""

from __future__ import annotations

from typing import Any

from tracekit.analysis.ddp.buckets import Buckets
from tracekit.render.console import table
from tracekit.render.quantities import file_size, milliseconds
from tracekit.schema import rows_of

__all__ = ["bucket_table"]

_SHOWN_BUCKETS = 16


def bucket_table(buckets: Buckets) -> list[object]:
    """A row a bucket, with times where reductions were recorded."""
    rows = rows_of(buckets, "bucket_map")
    times = {(row["module"], row["index"]): row for row in rows_of(buckets, "by_index")}
    if used := {module for module, _ in times}:
        rows = [row for row in rows if row["module"] in used]  # others were idle: models that take turns
    several = len({row["module"] for row in rows}) > 1
    title = "DDP buckets, in order of launch"
    columns = ["first parameter", "bucket", "params", "size"]
    if times:
        title += " (ms; ready: from the step's start)"
        columns += ["ready", "queued", "took", "exposed", "bus\nGB/s"]
    if (buckets.micro_batches or 1) > 1:
        title += f"; in the last of {buckets.micro_batches} micro-batches"
    if rows[0]["inferred"]:
        title += "; inferred from the order and sizes of all-reduces"
    if len(rows) > _SHOWN_BUCKETS:
        title += f"; the first {_SHOWN_BUCKETS} of {len(rows)}, --json has all"
    cells = [
        (
            *((row["module"],) if several else ()),
            row["parameters"][0] if row["parameters"] else "n/a",
            str(row["index"]),
            str(len(row["parameters"])) if row["parameters"] else "n/a",
            file_size(row["size_bytes"]),
            *(_timing(times.get((row["module"], row["index"]))) if times else ()),
        )
        for row in rows[:_SHOWN_BUCKETS]
    ]
    return table(title, ["module", *columns] if several else columns, cells, left=1 + several)


def _timing(row: dict[str, Any] | None) -> tuple[str, ...]:
    if row is None:
        return ("n/a",) * 5
    bandwidth = "n/a" if row["busbw_bps"] is None else f"{row['busbw_bps'] / 1e9:.2f}"
    return (*(milliseconds(row[f"{name}_ns"]) for name in ("ready", "queued", "total", "exposed")), bandwidth)
