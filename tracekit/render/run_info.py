"""What a run holds, as text: ranks found and missing, steps, device, clocks, notes; and its kernels with their class.

Kernels of communication come first, then the longest of the others.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from tracekit.explain.attempts import attempts
from tracekit.explain.configuration import Configuration, configuration
from tracekit.model.run import ClockModel, Run, format_ranges
from tracekit.model.summary import RankSummary
from tracekit.model.texts import duration, milliseconds, shortened
from tracekit.rank.communication_rules import COMPUTE
from tracekit.render.console import command_line, draw, headline, next_command, note_lines, statement, table, write
from tracekit.render.grid import Grid
from tracekit.render.sections.job import attempt_tables, configuration_block
from tracekit.report.kernel_list import COPY, KernelUse

_SHOWN_RANKS = 64
_OTHERS_SHOWN = 20
_GAP, _MARGIN = 2, 2  # between columns, and around the table
_SHORTEST_NAME = 20
_LONGEST_RULE = 17


def run_text(run: Run, *, width: int = 80, color: bool = False) -> str:
    """Return what a run holds. width: in characters. color: with ANSI styles."""
    blocks: list[object] = [headline(run, width), ""]
    blocks += draw(ranks_grid(run, _SHOWN_RANKS))
    for group in run.groups:
        members = "all ranks" if len(group.ranks) == run.world_size else f"ranks {format_ranges(group.ranks)}"
        kinds = dict.fromkeys(filter(None, (group.parallelism, group.dimension)))
        kind = f" ({', '.join(kinds)})" if kinds else ""
        name = group.description or group.name or "(unnamed)"
        blocks.append(Text(f"group {name}{kind}: {members if group.ranks else 'n/a'}"))
    settings = configuration(run)
    if isinstance(settings, Configuration):
        blocks += ["", *configuration_block(settings, run)]
    if of_attempts := attempt_tables(attempts(run)):
        blocks += ["", *of_attempts]
    if run.other_runs:
        rows = [(o.run_id or "without an id", str(o.attempt), f"{o.ranks:,}") for o in run.other_runs]
        title = "Other runs here; --run and --attempt choose"
        blocks += ["", *table(title, ("run", "attempt", "ranks"), rows)]
    if notes := [note for note in run.notes if note.id != "other-run"]:
        blocks += ["", *note_lines(notes, all_told_by=command_line("analyze", run, "--json"))]
    blocks += ["", next_command("analyze", run)]
    return write(blocks, width=width, color=color)


def ranks_grid(run: Run, most: int) -> Grid:
    """Return the first ranks with their steps and their clocks."""
    heads = ("rank", "host", "steps", "complete", "events", "clock", "offset", "error", "drift")
    rows = [_row(summary, clock) for summary, clock in zip(run.ranks, run.clocks, strict=True)]
    title = "Ranks" if len(rows) <= most else f"The first {most} of {len(rows)} ranks"
    return Grid(title=title, heads=heads, left=[name in ("rank", "host") for name in heads], rows=rows[:most])


def _row(summary: RankSummary, clock: ClockModel) -> tuple[str, ...]:
    steps = summary.recorded_steps if summary.unmeasured is not None else [step.step for step in summary.steps]
    complete = sum(step.complete for step in summary.steps)
    return (
        str(summary.rank),
        summary.host or "n/a",
        format_ranges(steps),
        str(complete),
        f"{summary.event_count:,}",
        {"collectives": "fitted", "messages": "bounded"}.get(clock.method, clock.method),
        "n/a" if clock.method == "none" else duration(clock.offset_ns, "+"),
        "n/a" if clock.error_ns is None else f"±{duration(clock.error_ns)}",
        "n/a" if clock.drift_ppm is None else f"{clock.drift_ppm:+.1f} ppm",
    )


def kernel_text(run: Run, uses: Sequence[KernelUse], *, width: int = 80, color: bool = False) -> str:
    """Return what ran on the devices and what it counts as. width: in characters. color: with ANSI styles."""
    blocks: list[object] = [headline(run, width), ""]
    if not uses:
        blocks.append(statement("info", "nothing ran on a device: the ranks computed on CPUs"))
    communication = [use for use in uses if use.kind not in (COMPUTE, COPY)]
    others = [use for use in uses if use.kind in (COMPUTE, COPY)]
    total_ns = sum(use.total_ns for use in uses)
    for title, rows in (("Communication", communication), ("Compute and copies", others[:_OTHERS_SHOWN])):
        if rows:
            blocks += _kernel_table(title, rows, total_ns, width)
    if len(others) > _OTHERS_SHOWN:
        left_ns = sum(use.total_ns for use in others[_OTHERS_SHOWN:])
        text = f"{len(others) - _OTHERS_SHOWN} more functions compute or copy, {milliseconds(left_ns)} ms"
        blocks.append(statement("info", text))
    text = "a rule of yours comes first: --communication-rule REGEX=KIND, or REGEX=compute"
    blocks += [statement("info", text), "", next_command("analyze", run)]
    return write(blocks, width=width, color=color)


def _kernel_table(title: str, uses: Sequence[KernelUse], total_ns: int, width: int) -> list[object]:
    columns = ("function", "counts as", "rule for", "count", "time", "of all")
    others = [
        (
            use.kind,
            shortened(use.rule, _LONGEST_RULE, keep="end") or "-",
            f"{use.count:,}",
            milliseconds(use.total_ns),
            f"{use.total_ns / total_ns:.0%}" if total_ns else "n/a",
        )
        for use in uses
    ]
    taken = sum(max(map(len, column)) + _GAP for column in zip(columns[1:], *others, strict=True))
    room = max(width - taken - _MARGIN, _SHORTEST_NAME)
    rows = [(_name(use.function, room), *cells) for use, cells in zip(uses, others, strict=True)]
    return table(f"{title} (ms, sums over all that was recorded)", columns, rows, left=3)


def _name(function: str, room: int) -> str:
    """Return the name in `room` characters: of a qualified name the end says most, of another one the beginning."""
    return shortened(function, room, keep="end" if "::" in function else "start")
