"""What a step's time is spent on, and the memory it takes. Times are milliseconds a step."""

from __future__ import annotations

from tracekit.analysis.step_time.memory import Memory
from tracekit.analysis.step_time.phases import StepPhases
from tracekit.analysis.step_time.sections import MEMORY_SECTION, PHASES_SECTION
from tracekit.analysis.table import rows_of
from tracekit.model.quantities import file_size, milliseconds
from tracekit.render.console import statement, table
from tracekit.render.section_view import SectionView

__all__ = ["MEMORY_VIEW", "PHASES_VIEW", "phase_tables"]


def phase_tables(phases: StepPhases) -> list[object]:
    """Return a row for each phase, if there are several, and a line about what happened in the steps."""
    rows = rows_of(phases, "by_phase")
    cells = [
        (
            row["phase"],
            f"{row['share']:.0%}",
            *(milliseconds(row[f"{part}_ns"]) for part in ("total", "compute", "exposed_comm", "idle")),
            f"{row['worst_rank']}: {milliseconds(row['worst_total_ns'])}",
        )
        for row in rows
    ]
    columns = ("phase", "share", "time", "compute", "exposed\ncomm", "idle", "most on\nrank")
    title = "What the step does (ms a step, mean over ranks)"
    facts = _phase_facts(phases)
    return [
        *(table(title, columns, cells) if len(rows) > 1 else []),
        *([statement("info", facts), ""] if facts else []),
    ]


def _phase_facts(phases: StepPhases) -> str:
    """Return what happened in the steps, of the first rank that shows it: ranks rarely differ. May be empty."""
    ranks = rows_of(phases, "ranks")
    parts = []
    row = next((row for row in ranks if row["micro_steps"] and row["micro_steps"] != 1), None)
    if row is not None:
        parts.append(f"{row['micro_steps']:.3g} backward passes a step")
    row = next((row for row in ranks if row["recompute_count"] and row["steps"]), None)
    if row is not None:
        parts.append(
            f"{row['recompute_count'] / row['steps']:.3g} checkpointed forwards run again a step "
            f"({milliseconds(row['recompute_ns'] / row['steps'])} ms of its backward on rank {row['rank']})"
        )
    row = next((row for row in ranks if row["autocast"]), None)
    if row is not None:
        parts.append(f"autocast to {', '.join(row['autocast'])}")
    row = next((row for row in ranks if row["scaled_steps"]), None)
    if row is not None:
        skipped = "n/a" if row["skipped_steps"] is None else row["skipped_steps"]
        parts.append(f"scaled gradients, {skipped} of {row['scaled_steps']} optimizer steps skipped")
    return "; ".join(parts)


def _memory_text(memory: Memory) -> str:
    """Return a line about the rank with the highest peak; empty without any."""
    rows = rows_of(memory, "ranks")
    if not rows:
        return ""
    worst = max(rows, key=lambda row: (row["peak_bytes"] or 0, -row["rank"]))
    names = (("parameter_bytes", "parameters"), ("gradient_bytes", "gradients"), ("optimizer_bytes", "optimizer"))
    parts = [f"{'n/a' if worst[field] is None else file_size(worst[field])} {name}" for field, name in names]
    parts += [f"peak {file_size(worst['peak_bytes'])}"] if worst["peak_bytes"] is not None else []
    return ", ".join(parts) + (f" (rank {worst['rank']}, the highest)" if len(rows) > 1 else "")


def _memory_line(memory: Memory) -> list[object]:
    line = _memory_text(memory)
    return [statement("info", f"Memory: {line}")] if line else []


PHASES_VIEW = SectionView(
    section=PHASES_SECTION,
    json=lambda result: {"phases": {"parts": rows_of(result, "parts"), "ranks": rows_of(result, "ranks")}},
    text=lambda result, run, width: phase_tables(result) if rows_of(result, "by_phase") else [],
)
MEMORY_VIEW = SectionView(
    section=MEMORY_SECTION,
    json=lambda result: {"memory": rows_of(result, "ranks")},
    text=lambda result, run, width: _memory_line(result),
)
