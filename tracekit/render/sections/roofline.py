"""The floating-point work of steps in the terminal and as JSON."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from tracekit.analysis.step_time.roofline import Roofline
from tracekit.analysis.step_time.sections import ROOFLINE_SECTION
from tracekit.analysis.table import rows_of
from tracekit.render.console import statement
from tracekit.render.section_view import SectionView

__all__ = ["ROOFLINE_VIEW", "roofline_dict", "roofline_text"]

_WHAT = {"flops": "model FLOP/s", "peak": "MFU", "mfu": "MFU"}


def roofline_dict(result: Roofline) -> dict[str, Any]:
    return {
        "by_rank": rows_of(result, "by_rank"),
        "source": result.source,
        "peak_source": result.peak_source,
        "unknown": {name: missing.reason for name, missing in result.unavailable.items()},
        "uncounted": list(result.uncounted),
    }


def roofline_text(result: Roofline) -> str:
    """Return a line of means over ranks; empty for a run without countable work and without a reason."""
    rows = [row for row in rows_of(result, "by_rank") if row["flops"]]
    reasons = "; ".join(
        f"{_WHAT[name]} n/a: {missing.reason}" for name, missing in result.unavailable.items() if name in _WHAT
    )
    if not rows:
        return reasons if "flops" in result.unavailable else ""
    steps, flops = sum(row["steps"] for row in rows), sum(row["flops"] for row in rows)
    least = "at least " if any(row["lower_bound"] for row in rows) else ""
    of = f" ({', '.join(rows[0]['dtypes'])})" if rows[0]["dtypes"] else ""
    compute_ns, step_ns = sum(row["compute_ns"] for row in rows), sum(row["step_ns"] for row in rows)
    text = f"{least}{_scaled(flops / steps)}FLOP a step and rank{of}: {_scaled(flops / step_ns * 1e9)}FLOP/s"
    if compute_ns:
        text += f", {_scaled(flops / compute_ns * 1e9)}FLOP/s in the {compute_ns / step_ns:.0%} spent computing"
    known = [row for row in rows if row["mfu"] is not None]
    if len(known) == len(rows):
        text += f"; MFU {least}{_percent(rows, 'mfu')}"
        again = sum(row["recomputed_flops"] or 0 for row in rows)
        if again:
            inferred = " (inferred)" * any(row["recompute"] == "inferred" for row in rows)
            text += f", HFU {_percent(rows, 'hfu')} with the {again / flops:.0%} that are recomputed{inferred}"
        peaks = {row["peak_flops_per_s"] for row in rows}
        text += (
            f", of {_scaled(max(peaks))}FLOP/s ({'given' if result.peak_source == 'given' else 'data sheet, dense'})"
        )
    elif reasons:
        text += f"; {reasons}"
    if result.uncounted:
        text += f"; not counted: {', '.join(result.uncounted[:3])}{' ...' * (len(result.uncounted) > 3)}"
    return text


def _percent(rows: Sequence[Mapping[str, Any]], name: str) -> str:
    """Mean over rows, three digits."""
    return f"{100 * statistics.fmean(row[name] for row in rows):.3g}%"


def _scaled(value: float) -> str:
    """Three digits and a decimal unit."""
    units = ["", "k", "M", "G", "T", "P", "E"]
    while value >= 1000 and len(units) > 1:
        value, units = value / 1000, units[1:]
    return f"{value:.3g} {units[0]}"


def _text(result: Roofline) -> list[object]:
    line = roofline_text(result)
    return [statement("info", line)] if line else []


ROOFLINE_VIEW = SectionView(
    section=ROOFLINE_SECTION,
    json=lambda result: {"roofline": roofline_dict(result)},
    text=lambda result, run, width: _text(result),
    null_keys=("roofline",),
)
