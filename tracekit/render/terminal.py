"""The report for a terminal: the verdict, what is missing or damaged, tables, what to type next.

Comes in: a `Report`. Goes out: text of a given width. Times are milliseconds a step, means over complete steps.
"""

from __future__ import annotations

import io
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tracekit.analysis.report import Report
from tracekit.model.notes import Note
from tracekit.model.run import Run
from tracekit.model.summary import RankSummary, StepParts
from tracekit.render.safe_text import safe_text

__all__ = ["TerminalReport", "file_size", "headline", "next_command", "note_lines", "table", "write"]

_SHOWN_RANKS = 16
_SHOWN_OF_A_KIND = 3
_STYLE = {"error": "bold red", "warning": "yellow", "info": "dim"}
_MARK = {"error": "x", "warning": "!", "info": "·"}


@dataclass(frozen=True, kw_only=True)
class TerminalReport:
    """`width` in characters; `color` writes ANSI styles."""

    width: int = 80
    color: bool = False

    suffix = ".txt"

    def render(self, report: Report) -> str:
        run = report.run
        parts: list[object] = [headline(run), ""]
        parts += [_finding(finding.severity, finding.text, first=i == 0) for i, finding in enumerate(report.findings)]
        if grave := [note for note in run.notes if note.severity != "info"]:
            parts += ["", *note_lines(grave)]
        if report.breakdown is not None:
            parts += ["", _breakdown_table(run)]
        if report.overlap is not None and any(summary.communication for summary in run.ranks):
            parts += [_communication_table(run)]
        parts += note_lines([note for note in run.notes if note.severity == "info"])
        parts += ["", next_command("merge", *run.paths, "-o", "run.pftrace")]
        return write(parts, width=self.width, color=self.color)


def write(parts: Iterable[object], *, width: int, color: bool) -> str:
    """Renderables to text; strings are taken literally, never as markup."""
    stream = io.StringIO()
    console = Console(
        file=stream, width=width, force_terminal=color, no_color=not color, markup=False, highlight=False, emoji=False
    )
    for part in parts:
        console.print(part)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def headline(run: Run) -> Text:
    """What was read: run, ranks, device, parallelism."""
    expected = run.world_size if run.selected_ranks is None else len(run.selected_ranks)
    ranks = f"{len(run.ranks)} of {expected} ranks" if expected else f"{len(run.ranks)} ranks"
    names = sorted({s.device_name for s in run.ranks if s.device_name})
    device = f"{run.device.upper()} ({', '.join(names[:3])})" if names else run.device.upper()
    steps = {len([step for step in s.steps if step.complete]) for s in run.ranks}
    counted = str(steps.pop()) if len(steps) == 1 else f"{min(steps)} to {max(steps)}"
    facts = [ranks, f"{counted} step{'s' * (counted != '1')}", device, " + ".join(run.strategies) or None]
    name = run.path if run.run_id is None else f"{run.path}, run {run.run_id}"
    if run.attempt:
        name += f", attempt {run.attempt}"
    return Text.assemble((safe_text(name), "bold"), "\n", " · ".join(safe_text(fact) for fact in facts if fact))


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1) -> Table:
    """A table whose first `left` columns are text and the others numbers."""
    result = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1),
        collapse_padding=True,
    )
    for i, column in enumerate(columns):
        result.add_column(column, justify="left" if i < left else "right", overflow="fold")
    for row in rows:
        result.add_row(*(Text(safe_text(cell)) for cell in row))
    return result


def note_lines(notes: Sequence[Note]) -> list[object]:
    """The gravest kinds of notes first; of a kind that many ranks share, the first few."""
    by_kind: dict[str, list[Note]] = {}
    for note in sorted(notes, key=lambda note: ("error", "warning", "info").index(note.severity)):
        by_kind.setdefault(note.kind, []).append(note)
    lines: list[object] = []
    for same in by_kind.values():
        shown = same if len(same) <= _SHOWN_OF_A_KIND else same[: _SHOWN_OF_A_KIND - 1]
        lines += [_finding(note.severity, note.text, first=False) for note in shown]
        if len(shown) < len(same):
            text = f"{len(same) - len(shown)} more notes of this kind ({same[0].kind}); --json has all"
            lines.append(_finding(same[0].severity, text, first=False))
    return lines


def _finding(severity: str, text: str, *, first: bool) -> Padding:
    style = "bold" if first else _STYLE[severity] if severity != "warning" else ""
    grid = Table.grid(padding=(0, 1))
    grid.add_row(Text(_MARK[severity], style=_STYLE[severity]), Text(safe_text(text), style=style))
    return Padding(grid, 0)


def _breakdown_table(run: Run) -> Table:
    columns = ("rank", "step", "compute", "exposed\ncomm", "exposed\ncopy", "idle", "overlap")
    slowest_first = sorted(run.ranks, key=lambda s: -sum(step.step_ns for step in s.steps if step.complete))
    shown = sorted(slowest_first[:_SHOWN_RANKS], key=lambda s: s.rank)
    rows = [_breakdown_row(summary) for summary in shown]
    title = "Where each rank's time goes (ms a step, mean of its complete steps)"
    if len(shown) < len(run.ranks):
        title += f"; the {len(shown)} slowest of {len(run.ranks)} ranks, --json has all"
    return table(title, columns, rows)


def _breakdown_row(summary: RankSummary) -> tuple[str, ...]:
    steps = [step for step in summary.steps if step.complete]
    if not steps:
        return (str(summary.rank), "n/a", "no step", "complete", "", "", "")
    total_ns = sum(step.step_ns for step in steps)
    cells = [str(summary.rank), _milliseconds(total_ns / len(steps))]
    for part in ("compute_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns"):
        part_ns = _sum(steps, part)
        cells.append(f"{_milliseconds(part_ns / len(steps))} {part_ns / total_ns if total_ns else 0:>4.0%}")
    comm_ns = _sum(steps, "comm_ns")
    cells.append(f"{_sum(steps, 'overlapped_comm_ns') / comm_ns:.2%}" if comm_ns else "n/a")
    return tuple(cells)


def _sum(steps: Sequence[StepParts], part: str) -> int:
    return sum(getattr(step, part) for step in steps)


def _communication_table(run: Run) -> Table:
    """Rows of all ranks added up: means over the ranks that have them, and the rank with the most exposed time."""
    index = {group: i for i, group in enumerate(run.groups)}
    rows: dict[tuple[str, str, str], list[tuple[RankSummary, int, int | None, int, int]]] = {}
    for summary in run.ranks:
        steps = max(sum(step.complete for step in summary.steps), 1)
        merged: dict[tuple[str, str, str], list[int | None]] = {}
        for row in summary.communication:
            name = (
                "n/a" if row.group is None else row.group.parallelism or row.group.description or str(index[row.group])
            )
            cell = merged.setdefault((row.kind, row.phase or "n/a", name), [0, 0, 0, 0])
            size = None if cell[1] is None or row.size_bytes is None else cell[1] + row.size_bytes
            cell[:] = [(cell[0] or 0) + row.count, size, (cell[2] or 0) + row.total_ns, (cell[3] or 0) + row.exposed_ns]
        for key, (count, size_bytes, total_ns, exposed_ns) in merged.items():
            per_step = None if size_bytes is None else size_bytes // steps
            rows.setdefault(key, []).append(
                (summary, round((count or 0) / steps), per_step, (total_ns or 0) // steps, (exposed_ns or 0) // steps)
            )
    cells = []
    for (kind, phase, group), entries in sorted(rows.items(), key=lambda item: -sum(entry[4] for entry in item[1])):
        most = max(entries, key=lambda entry: entry[4])
        sizes = [entry[2] for entry in entries]
        cells.append(
            (
                kind,
                phase,
                group,
                str(max(entry[1] for entry in entries)),
                "n/a" if None in sizes else file_size(max(size for size in sizes if size is not None)),
                _milliseconds(sum(entry[3] for entry in entries) / len(entries)),
                _milliseconds(sum(entry[4] for entry in entries) / len(entries)),
                f"{most[0].rank}: {_milliseconds(most[4])}",
            )
        )
    columns = ("kind", "phase", "group", "count", "size", "total", "exposed", "worst\nrank")
    return table("Communication (ms a step, mean over ranks)", columns, cells, left=3)


def _milliseconds(nanoseconds: float) -> str:
    return f"{nanoseconds / 1e6:,.2f}"


def file_size(size_bytes: int) -> str:
    """Three digits and a decimal unit, 1 kB = 1000 bytes."""
    size, units = float(size_bytes), ["B", "kB", "MB", "GB", "TB"]
    while size >= 1000 and len(units) > 1:
        size, units = size / 1000, units[1:]
    return f"{size:.3g} {units[0]}"


def next_command(*arguments: str) -> Text:
    """What to type next, after `tracekit`, as a shell takes it."""
    return Text.assemble("Next: ", (safe_text(shlex.join(("tracekit", *arguments))), "bold"))
