"""What the probe sees of a job, as one page of text made from the report on one recorded window."""

from __future__ import annotations

from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from tracekit.analysis.ddp.parts import DDP_MODULES
from tracekit.analysis.fsdp.parts import FSDP_UNITS
from tracekit.analysis.report import Report
from tracekit.model.communication import GroupKey
from tracekit.model.names.modules import names_together
from tracekit.model.quantities import milliseconds
from tracekit.model.ranks import format_ranges
from tracekit.model.run import Run
from tracekit.model.safe_text import safe_text
from tracekit.render.console import note_lines, write
from tracekit.render.overhead_line import overhead_text
from tracekit.render.sections.phases import memory_text, phase_facts

_SHOWN_GROUPS = 12

__all__ = ["CheckupPage"]


@dataclass(frozen=True, kw_only=True)
class CheckupPage:
    """`width` in characters; `color` writes ANSI styles."""

    width: int = 80
    color: bool = False

    def render(self, report: Report, script: str, *, profiler: str, ended_early: bool) -> str:
        ending = "ended after its first recorded window" if ended_early else "ran to its end"
        title = Text(f"What the probe sees of {safe_text(script)}, which {ending}", style="bold")
        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        for name, text in [*_facts(report), ("profiler", f"records {profiler}")]:
            grid.add_row(Text(name, style="dim"), Text(safe_text(text)))
        parts: list[object] = [title, "", grid]
        if report.run.notes:
            parts += ["", *note_lines(report.run.notes)]
        next_line = Text("Next: run it without doctor, and read its probe's folder with tracekit analyze", no_wrap=True)
        return write([*parts, "", next_line], width=self.width, color=self.color)


def _facts(report: Report) -> list[tuple[str, str]]:
    """Return name and text of each line that applies to the run."""
    run = report.run
    hosts = sorted({summary.host for summary in run.ranks if summary.host})
    ranks = f"{len(run.ranks)} of {run.world_size or len(run.ranks)}"
    facts = [("ranks", f"{ranks} ({format_ranges(s.rank for s in run.ranks)}), on {', '.join(hosts[:4]) or 'n/a'}")]
    names = sorted({summary.device_name for summary in run.ranks if summary.device_name})
    facts.append(("devices", f"{run.device.upper()}: {', '.join(names[:4]) or 'n/a'}"))
    inferred = any(summary.strategies_inferred for summary in run.ranks)
    strategies = " + ".join(run.strategies) + " (inferred from labels)" * inferred
    facts.append(("strategies", strategies if run.strategies else "none recognised"))
    mesh = next((summary.mesh for summary in run.ranks if summary.mesh is not None), None)
    if mesh is not None:
        dimensions = " x ".join(f"{name} {size}" for name, size in zip(mesh.names, mesh.shape, strict=True))
        facts.append(("mesh", dimensions))
    facts += [("groups" if i == 0 else "", text) for i, text in enumerate(_groups(run))]
    facts += [("buckets", text) for text in _buckets(run)]
    together = {row.module for summary in run.ranks for row in summary[FSDP_UNITS] if row.module is not None}
    modules = {name for names in together for name in names_together(names)[0]}
    facts += [("modules", f"{len(modules)} whose parameters or gradients are sharded")] if modules else []
    facts.append(("steps", _steps(run)))
    if report.phases is not None and (text := phase_facts(report.phases)):
        facts.append(("in a step", text))
    if report.memory is not None and (text := memory_text(report.memory)):
        facts.append(("memory", text))
    facts.append(("clocks", _clocks(run)))
    return facts


def _groups(run: Run) -> list[str]:
    def text(group: GroupKey) -> str:
        name = group.description or group.name or "a group"
        members = f"ranks {format_ranges(group.ranks)}" if group.ranks else "members unknown"
        return f"{name}: {group.parallelism or 'unknown parallelism'}, {members}"

    lines = [text(group) for group in run.groups[:_SHOWN_GROUPS]]
    left = len(run.groups) - len(lines)
    return [*lines, f"and {left} more"] if left else lines or ["none: no process group"]


def _buckets(run: Run) -> list[str]:
    modules = next((summary[DDP_MODULES].modules for summary in run.ranks if summary[DDP_MODULES].modules), ())
    return [f"{len(module.buckets)} of DDP around {module.module}" for module in modules]


def _steps(run: Run) -> str:
    steps = [step for summary in run.ranks for step in summary.steps if step.complete]
    if not steps:
        return "none is complete"
    events = sum(summary.event_count for summary in run.ranks) // len(run.ranks)
    overhead = overhead_text(run)
    numbers = format_ranges({step.step for step in steps})
    text = f"{numbers} recorded, {milliseconds(sum(s.step_ns for s in steps) / len(steps))} ms, {events:,} events"
    return f"{text}; {overhead}" if overhead else text


def _clocks(run: Run) -> str:
    measured = [clock for clock in run.clocks if clock.method != "none"]
    if not measured:
        return "not measured"
    worst = max(measured, key=lambda clock: abs(clock.offset_ns))
    error = "n/a" if worst.error_ns is None else f"{worst.error_ns / 1e3:,.1f} us"
    return f"{len(measured)} of {len(run.clocks)} measured; largest offset {worst.offset_ns / 1e3:,.1f} us ± {error}"
