"""Building blocks of terminal output: headline, tables, notes, the next command.

Text that comes from traces is escaped here, so that it cannot control the terminal.
"""

from __future__ import annotations

import io
import shlex
from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tracekit.model.notes import Note
from tracekit.model.run import Run
from tracekit.render.safe_text import safe_text

__all__ = ["headline", "next_command", "note_lines", "statement", "table", "write"]

_SHOWN_OF_A_KIND = 3
_STYLE = {"error": "bold red", "warning": "yellow", "info": "dim"}
_MARK = {"error": "x", "warning": "!", "info": "·"}


def write(parts: Iterable[object], *, width: int, color: bool) -> str:
    """Return rich renderables as text of the given width. Strings are literal, not markup."""
    stream = io.StringIO()
    console = Console(
        file=stream, width=width, force_terminal=color, no_color=not color, markup=False, highlight=False, emoji=False
    )
    for part in parts:
        # A command must be copied in one piece, however narrow the terminal.
        console.print(part, soft_wrap=isinstance(part, Text) and bool(part.no_wrap))
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def headline(run: Run) -> Text:
    """Return the headline of a run: its name, ranks, steps, device and parallelism."""
    expected = run.world_size if run.selected_ranks is None else len(run.selected_ranks)
    ranks = f"{len(run.ranks)} of {expected}{' selected' if run.selected_ranks is not None else ''} ranks"
    if not expected:
        ranks = f"{len(run.ranks)} rank{'s' * (len(run.ranks) != 1)}"
    names = sorted({s.device_name for s in run.ranks if s.device_name})
    device = f"{run.device.upper()} ({', '.join(names[:3])})" if names else run.device.upper()
    trained = [s for s in run.ranks if not s.serves_only] or run.ranks
    steps = {len([step for step in s.steps if step.complete]) for s in trained}
    counted = str(steps.pop()) if len(steps) == 1 else f"{min(steps)} to {max(steps)}"
    facts = [ranks, f"{counted} step{'s' * (counted != '1')}", device, " + ".join(run.strategies) or None]
    name = run.path if run.run_id is None else f"{run.path}, run {run.run_id}"
    if run.attempt:
        name += f", attempt {run.attempt}"
    return Text.assemble((safe_text(name), "bold"), "\n", " · ".join(safe_text(fact) for fact in facts if fact))


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1) -> list[object]:
    """Return a title and a table. The first `left` columns are text, the others numbers."""
    result = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1), collapse_padding=True)
    for i, column in enumerate(columns):
        result.add_column(column, justify="left" if i < left else "right", overflow="fold")
    for row in rows:
        result.add_row(*(Text(safe_text(cell)) for cell in row))
    return [Text(title, style="bold"), result]


def note_lines(notes: Sequence[Note], *, all_told_by: str = "--json") -> list[object]:
    """Return lines for the notes, the most severe first.

    Of a kind with many notes the first few are shown, with the command that shows all of them.
    """
    by_kind: dict[str, list[Note]] = {}
    for note in sorted(notes, key=lambda note: ("error", "warning", "info").index(note.severity)):
        by_kind.setdefault(note.kind, []).append(note)
    lines: list[object] = []
    for same in by_kind.values():
        shown = same if len(same) <= _SHOWN_OF_A_KIND else same[: _SHOWN_OF_A_KIND - 1]
        lines += [statement(note.severity, note.text) for note in shown]
        if len(shown) < len(same):
            text = f"{len(same) - len(shown)} more notes of this kind ({same[0].kind}); {all_told_by} has all"
            lines.append(statement(same[0].severity, text))
    return lines


def statement(severity: str, text: str, *, leading: bool = False) -> Table:
    """Return a sentence after the mark of its severity. The leading one, in bold, is the verdict."""
    style = "bold" if leading else _STYLE[severity] if severity != "warning" else ""
    grid = Table.grid(padding=(0, 1))
    grid.add_row(Text(_MARK[severity], style=_STYLE[severity]), Text(safe_text(text), style=style))
    return grid


def next_command(command: str, run: Run, *arguments: str) -> Text:
    """What to type next for the same selection, as a shell takes it, in one piece."""
    line = safe_text(shlex.join(["tracekit", command, *run.arguments, *arguments]))
    return Text.assemble("Next: ", (line, "bold"), no_wrap=True)
