"""The report for a terminal: the verdict, what is missing or damaged, tables, what to type next.

Comes in: a `Report`. Goes out: text of a given width. Times are milliseconds a step, means over complete steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tracekit.analysis.communication.overlap import Overlap
from tracekit.analysis.report import Report
from tracekit.analysis.step_time.breakdown import Breakdown
from tracekit.render.console import headline, next_command, note_lines, statement, table, write
from tracekit.render.overhead_line import overhead_text
from tracekit.render.quantities import file_size, milliseconds
from tracekit.render.sections.bucket_chart import bucket_chart
from tracekit.render.sections.buckets import bucket_table
from tracekit.render.sections.collectives import collectives_table
from tracekit.render.sections.dimensions import dimension_table
from tracekit.render.sections.fsdp import fsdp_table
from tracekit.render.sections.model_parallel import expert_table, tensor_table
from tracekit.render.sections.phases import memory_text, phase_tables
from tracekit.render.sections.pipeline import bubble_table, pipeline_table
from tracekit.render.sections.pipeline_grid import pipeline_grid
from tracekit.render.sections.roofline import roofline_text
from tracekit.render.sections.rpc import rpc_table
from tracekit.render.sections.stragglers import critical_path_table, straggler_table
from tracekit.render.sections.whatif import fix_table
from tracekit.schema import rows_of

__all__ = ["TerminalReport"]

_MOST_RANKS = 16
_SHOWN_RANKS = 8  # of more than that


@dataclass(frozen=True, kw_only=True)
class TerminalReport:
    """`width` in characters; `color` writes ANSI styles."""

    width: int = 80
    color: bool = False

    suffix = ".txt"

    def render(self, report: Report) -> str:
        run = report.run
        parts: list[object] = [headline(run), ""]
        parts += [statement(f.severity, f.text, leading=i == 0) for i, f in enumerate(report.findings)]
        if grave := [note for note in run.notes if note.severity != "info"]:
            parts += ["", *note_lines(grave)]
        parts.append("")
        if report.breakdown is not None:
            parts += _breakdown_table(report.breakdown)
        if report.phases is not None and rows_of(report.phases, "by_phase"):
            parts += phase_tables(report.phases)
        if report.overlap is not None and rows_of(report.overlap, "by_kind"):
            parts += _communication_table(report.overlap)
        if report.collectives is not None and rows_of(report.collectives, "table"):
            parts += collectives_table(report.collectives, run)
        if report.buckets is not None and rows_of(report.buckets, "bucket_map"):
            parts += bucket_table(report.buckets)
            parts += [] if report.buckets.picture is None else bucket_chart(report.buckets.picture)
        if report.fsdp is not None and rows_of(report.fsdp, "by_module"):
            parts += fsdp_table(report.fsdp, report.run.strategies)
        if report.tensor is not None and rows_of(report.tensor, "by_module"):
            parts += tensor_table(report.tensor)
        if report.expert_load is not None and rows_of(report.expert_load, "ranks"):
            parts += expert_table(report.expert_load)
        if report.pipeline is not None:
            parts += pipeline_table(report.pipeline)
            parts += bubble_table(report.pipeline)
            parts += pipeline_grid(rows_of(report.pipeline, "typical_step"), self.width)
        if report.dimensions is not None and rows_of(report.dimensions, "by_name"):
            parts += dimension_table(report.dimensions)
        if report.rpc is not None and rows_of(report.rpc, "by_function"):
            parts += rpc_table(report.rpc)
        if report.stragglers is not None and len(run.ranks) > 1:
            parts += straggler_table(report.stragglers)
        if report.critical_path is not None and rows_of(report.critical_path, "parts"):
            parts += critical_path_table(report.critical_path)
        if report.whatif is not None and report.whatif.fixes:
            parts += fix_table(report.whatif)
        if report.roofline is not None and (line := roofline_text(report.roofline)):
            parts.append(statement("info", line))
        if report.memory is not None and (line := memory_text(report.memory)):
            parts.append(statement("info", f"Memory: {line}"))
        if cost := overhead_text(run):
            parts.append(statement("info", cost))
        parts += note_lines([note for note in run.notes if note.severity == "info"])
        parts += ["", next_command("merge", run, "-o", "run.pftrace")]
        return write(parts, width=self.width, color=self.color)


def _breakdown_table(breakdown: Breakdown) -> list[object]:
    ranks = rows_of(breakdown, "ranks")
    slowest_first = sorted(ranks, key=lambda row: -_mean(row, "step_ns"))
    shown = sorted(slowest_first[: _SHOWN_RANKS if len(ranks) > _MOST_RANKS else None], key=lambda row: row["rank"])
    title = "Where each rank's time goes (ms a step, mean of its complete steps)"
    if len(shown) < len(ranks):
        title += f"; the {len(shown)} slowest of {len(ranks)} ranks, --json has all"
    columns = ("rank", "step", "compute", "exposed\ncomm", "exposed\ncopy", "idle", "overlap")
    return table(title, columns, [_breakdown_row(row) for row in shown])


def _breakdown_row(row: dict[str, Any]) -> tuple[str, ...]:
    if not row["steps"]:
        return (str(row["rank"]), *["n/a"] * 6)
    parts = [
        f"{milliseconds(_mean(row, part))} {row[part] / max(row['step_ns'], 1):>4.0%}"
        for part in ("compute_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns")
    ]
    overlap = "n/a" if row["overlap_ratio"] is None else f"{row['overlap_ratio']:.2%}"
    return (str(row["rank"]), milliseconds(_mean(row, "step_ns")), *parts, overlap)


def _mean(row: dict[str, Any], part: str) -> float:
    return float(row[part] / row["steps"]) if row["steps"] else 0.0


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
