"""DDP's buckets: what is in each, and when it was ready, queued, transferred and uncovered. Times are in ms."""

from __future__ import annotations

from typing import Any

from tracekit.analysis.ddp.buckets import BucketPicture, Buckets
from tracekit.analysis.ddp.sections import BUCKETS_SECTION
from tracekit.analysis.table import rows_of
from tracekit.model.quantities import file_size, milliseconds
from tracekit.model.run import Run
from tracekit.model.safe_text import safe_text
from tracekit.render.console import statement, table
from tracekit.render.section_view import SectionView

__all__ = ["BUCKETS_VIEW", "bucket_chart", "bucket_table"]

_SHOWN_BUCKETS = 16


def bucket_table(buckets: Buckets) -> list[object]:
    """Return a row for each bucket, with times where reductions were recorded."""
    rows = rows_of(buckets, "bucket_map")
    times = {(row["module"], row["index"]): row for row in rows_of(buckets, "by_index")}
    if used := {module for module, _ in times}:
        rows = [row for row in rows if row["module"] in used]  # other modules did not reduce in these steps
    several = len({row["module"] for row in rows}) > 1
    title = "DDP buckets, in order of launch"
    columns = ["first parameter", "bucket", "params", "size"]
    if times:
        title += " (ms; ready: from the step's start)"
        columns += ["ready", "queued", "took", "uncovered", "bus\nGB/s"]
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
    return (*(milliseconds(row[f"{name}_ns"]) for name in ("ready", "queued", "total", "uncovered")), bandwidth)


_MOST_BARS = 9
_COLUMNS = 54
_QUEUED, _HIDDEN, _AFTER = "·", "▒", "█"


def bucket_chart(picture: BucketPicture) -> list[object]:
    """Return bars of the reductions of one backward pass.

    Of many, the first two and the last ones are shown: at the end of the pass nothing covers them.
    """
    from rich.text import Text

    bars = picture.bars
    begin_ns, end_ns = bars[0].ready_ns, max(bar.end_ns for bar in bars)
    begin_ns -= (end_ns - begin_ns) // 8  # the first bucket's gradients came before it was ready
    scale = _COLUMNS / max(end_ns - begin_ns, 1)

    def column(time_ns: int) -> int:
        return min(max(round((time_ns - begin_ns) * scale), 0), _COLUMNS)

    gradients = "─" * max(column(picture.last_gradient_ns) - 1, 0) + "┤"
    lines = [f"{'gradients':<11}{gradients:<{_COLUMNS}}  uncovered"]
    shown = bars if len(bars) <= _MOST_BARS else (*bars[:2], *bars[2 - _MOST_BARS :])
    several = len({bar.module for bar in bars}) > 1
    for place, bar in enumerate(shown):
        if place == 2 and len(shown) < len(bars):
            lines.append(f"{'...':<11}{len(bars) - len(shown)} more")
        name = f"{bar.module[:7]} {bar.index}" if several else f"bucket {bar.index}"
        drawn = _bar(column(bar.ready_ns), column(bar.start_ns), column(bar.end_ns), column(picture.last_gradient_ns))
        lines.append(f"{name:<11}{drawn:<{_COLUMNS}} {milliseconds(bar.uncovered_ns):>8}")
    title = (
        f"Buckets against backward: rank {picture.rank}, step {picture.step}, a typical one; "
        f"{milliseconds(end_ns - begin_ns)} ms across"
    )
    legend = f"{_QUEUED} queued  {_HIDDEN} on its way during backward  {_AFTER} after the last gradient; times in ms"
    return [Text(title, style="bold"), "", *(Text(safe_text(line), no_wrap=True) for line in (*lines, legend)), ""]


def _bar(ready: int, start: int, end: int, last_gradient: int) -> str:
    end = max(end, start + 1)
    hidden = max(min(end, last_gradient) - start, 0)
    return " " * ready + _QUEUED * (start - ready) + _HIDDEN * hidden + _AFTER * (end - start - hidden)


def _json(buckets: Buckets) -> dict[str, Any]:
    missing = buckets.whatif_unavailable
    return {
        "bucket_map": rows_of(buckets, "bucket_map"),
        "buckets": rows_of(buckets, "times"),
        "buckets_by_index": rows_of(buckets, "by_index"),
        "bucket_micro_batches": buckets.micro_batches,
        "bucket_whatif": rows_of(buckets, "whatif"),
        "bucket_whatif_reason": None if missing is None or missing.expected else missing.reason,
    }


def _text(buckets: Buckets, run: Run, width: int) -> list[object]:
    if not rows_of(buckets, "bucket_map"):
        return []
    parts = bucket_table(buckets)
    if buckets.picture is not None:
        parts += bucket_chart(buckets.picture)
    missing = buckets.whatif_unavailable
    if missing is not None and not missing.expected:
        parts += [statement("info", f"other bucket sizes n/a: {missing.reason}"), ""]
    return parts


BUCKETS_VIEW = SectionView(section=BUCKETS_SECTION, json=_json, text=_text)
