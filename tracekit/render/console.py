"""Building blocks of terminal output: headline, tables, notes, the next command.

Text that comes from traces is escaped here, so that it cannot control the terminal. rich is imported when there is
something to write: results as JSON need none of it.
"""

from __future__ import annotations

import io
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

from tracekit.explain.configuration import CONFIGURATION
from tracekit.explain.step_time.step_lengths import different_paces_ns, step_lengths
from tracekit.model.notes import Note
from tracekit.model.run import Run
from tracekit.model.texts import milliseconds, safe_lines, safe_text, shortened
from tracekit.render.grid import Grid

if TYPE_CHECKING:
    from rich.console import ConsoleOptions, RenderableType
    from rich.table import Table
    from rich.text import Text


_SHOWN_OF_A_KIND = 3
_MOST_CHARACTERS = 2_000  # of a cell, or a statement: names may have a megabyte
_STYLE = {"error": "bold red", "warning": "yellow", "info": "dim"}
_SHORT = {"bfloat16": "bf16", "float16": "fp16"}
_FOUND = {
    "anchor": "from --step-anchor",
    "optimizer": "from optimizer steps",
    "labels": "from labels",
    "collectives": "from the period of collectives",
}
"""How steps were found that are not marked as such."""
_MARK = {"error": "x", "warning": "!", "info": "·"}


def write(blocks: Iterable[object], *, width: int, color: bool) -> str:
    """Return rich renderables as text of the given width. Strings are literal, not markup.

    Whatever the blocks are, no text in them can control a terminal.
    """
    from rich.console import Console  # noqa: TID251
    from rich.segment import Segment
    from rich.text import Text

    class SafeConsole(Console):
        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
            for segment in super().render(renderable, options):
                yield Segment(safe_lines(segment.text), segment.style)

    stream = io.StringIO()
    console = SafeConsole(
        file=stream, width=width, force_terminal=color, no_color=not color, markup=False, highlight=False, emoji=False
    )
    for block in blocks:
        # A command must be copied in one piece, however narrow the terminal.
        console.print(block, soft_wrap=isinstance(block, Text) and bool(block.no_wrap))
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def headline(run: Run, width: int = 80) -> Text:
    """Return the headline of a run, in three lines: its name; ranks, device and parallelism; its steps.

    A fourth says that other runs are in its folder.
    """
    from rich.text import Text

    lines = (_ranks_and_devices(run, width), _steps(run, width), *_other_runs(run))
    below = "\n".join(shortened(safe_text(line), width, keep="ends") for line in lines)
    return Text.assemble((shortened(safe_text(_name(run)), width, keep="ends"), "bold"), "\n", below)


def _name(run: Run) -> str:
    is_named = run.run_id is None or PurePath(run.path).name == run.run_id
    name = run.path if is_named else f"{run.path}, run {run.run_id}"
    return f"{name}, attempt {run.attempt}" if run.attempt else name


def _ranks_and_devices(run: Run, width: int) -> str:
    """Return a line of facts, with as much of number formats and names of devices as there is room for."""
    expected = run.world_size if run.selected_ranks is None else len(run.selected_ranks)
    ranks = f"{len(run.ranks)} of {expected}{' selected' if run.selected_ranks is not None else ''} ranks"
    if not expected:
        ranks = f"{len(run.ranks)} rank{'s' * (len(run.ranks) != 1)}"
    names, kind = sorted({s.device_name for s in run.ranks if s.device_name}), run.device.upper()
    devices = [f"{kind} ({', '.join(names)})", f"{kind} ({names[0]} and {len(names) - 1} more)"] if names else []
    strategies, details = " + ".join(run.strategies), ", ".join(_details(run))
    parallelism = [f"{strategies} ({details})" if strategies else details] * bool(details) + [strategies]
    lines = [" · ".join(filter(None, (ranks, device, how))) for device in (*devices, kind) for how in parallelism]
    return next((line for line in lines if len(line) <= width), lines[-1])


def _other_runs(run: Run) -> Iterator[str]:
    if others := {other.run_id for other in run.other_runs} - {run.run_id}:
        yield f"1 of {len(others) + 1} runs here; tracekit info lists them, --run chooses"


def _details(run: Run) -> list[str]:
    """Return in a word each in which format parameters or operators compute, and whether the model is compiled."""
    settings = [settings for summary in run.ranks for settings in summary[CONFIGURATION]]
    formats = [each.values.get(name) for each in settings for name in ("param_dtype", "autocast")]
    details = dict.fromkeys(_SHORT.get(str(name), str(name)) for name in formats if name is not None)
    return [*details, *(["compiled"] if any(each.component == "compile" for each in settings) else [])]


def _steps(run: Run, width: int) -> str:
    """Return how many steps there are and how long they are, with their range if there is room for it."""
    lengths = step_lengths(run)
    if lengths is None:
        return "no step that all ranks completed"
    if run.steps_from == ("recording",):
        where = "on the device" if run.device == "gpu" else "on the host"
        return f"no steps: 1 window of {_step_time(lengths.median_ns)} ms, from the first to the last event {where}"
    text = f"{lengths.count} step{'s' * (lengths.count != 1)}"
    if (paces_ns := different_paces_ns(run)) is not None:
        shortest_ns, longest_ns = paces_ns
        text += f" of each rank, their means {_step_time(shortest_ns)} to {_step_time(longest_ns)} ms"
    else:
        text += f" of {_step_time(lengths.median_ns)} ms"
        if lengths.count > 1:
            text += f" (median; {_step_time(lengths.min_ns)} to {_step_time(lengths.max_ns)})"
    found = [text for source, text in _FOUND.items() if source in run.steps_from]
    text += f", {' and '.join(found)}" * bool(found)
    if run.left_out:
        longest = f"{_step_time(max(left.step_ns for left in run.left_out))} ms"
        count = len(run.left_out)
        text += f", without the first ({longest})" if count == 1 else f", without {count} first ones (to {longest})"
    return text if len(text) <= width else re.sub(r" \(median; .*?\)", "", text)


def _step_time(nanoseconds: int) -> str:
    """Return milliseconds with a decimal from 10 ms on, none from 1 s on, and three digits below."""
    return milliseconds(nanoseconds, sum(nanoseconds < limit_ns for limit_ns in (1_000_000_000, 10_000_000, 1_000_000)))


def _shown(text: str) -> str:
    """Return a text of a run as a terminal may show it."""
    return safe_text(shortened(text, _MOST_CHARACTERS, keep="ends"))


def table(title: str, heads: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1) -> list[object]:
    """Return a title and a table. The first `left` columns are text, the others numbers."""
    return draw(Grid(title=title, heads=heads, left=[at < left for at in range(len(heads))], rows=list(rows)))


def draw(grid: Grid) -> list[object]:
    """Return the title and the table. Heads take as many lines as keep them from being wider than their columns."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    result = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1), collapse_padding=True)
    for at, (head, left) in enumerate(zip(grid.heads, grid.left, strict=True)):
        widest = max((len(row[at]) for row in grid.rows), default=0)
        result.add_column(_in_two_lines(head, widest), justify="left" if left else "right", overflow="fold")
    for row in grid.rows:
        result.add_row(*(Text(_shown(cell)) for cell in row))
    return [Text(grid.title, style="bold"), result]


def _in_two_lines(head: str, widest: int) -> str:
    """Return the head of a column in one line if its cells are as wide, else in two that are as short as can be."""
    if len(head) <= widest:
        return head
    words = head.split(" ")
    breaks = [(" ".join(words[:at]), " ".join(words[at:])) for at in range(1, len(words))]
    return "\n".join(min(breaks, key=lambda lines: max(map(len, lines)), default=(head,)))


def text_line(text: str, style: str = "") -> Text:
    """Return a text, which is no markup, in a style."""
    from rich.text import Text

    return Text(text, style=style)


def note_lines(notes: Sequence[Note], *, all_told_by: str = "--json") -> list[object]:
    """Return lines for the notes, the most severe first.

    Of a kind with many notes the first few are shown, with the command that shows all of them.
    """
    by_kind: dict[str, list[Note]] = {}
    for note in sorted(notes, key=lambda note: ("error", "warning", "info").index(note.severity)):
        by_kind.setdefault(note.id, []).append(note)
    lines: list[object] = []
    for same in by_kind.values():
        shown = same if len(same) <= _SHOWN_OF_A_KIND else same[: _SHOWN_OF_A_KIND - 1]
        lines += [statement(note.severity, note.text) for note in shown]
        if len(shown) < len(same):
            text = f"{len(same) - len(shown)} more notes of this kind ({same[0].id}); {all_told_by} has all"
            lines.append(statement(same[0].severity, text))
    return lines


def statement(severity: str, text: str, *, leading: bool = False) -> Table:
    """Return a sentence after the mark of its severity. The leading one, in bold, is the verdict."""
    from rich.table import Table
    from rich.text import Text

    style = "bold" if leading else _STYLE[severity] if severity != "warning" else ""
    grid = Table.grid(padding=(0, 1))
    grid.add_row(Text(_MARK[severity], style=_STYLE[severity]), Text(_shown(text), style=style))
    return grid


def next_command(command: str, run: Run, *arguments: str) -> Text:
    """What to type next for the same selection, as a shell takes it, in one piece."""
    from rich.text import Text

    return Text.assemble("Next: ", (command_line(command, run, *arguments), "bold"), no_wrap=True)


def command_line(command: str, run: Run, *arguments: str) -> str:
    """Return a command for the same selection, as a shell takes it."""
    return safe_text(shlex.join(["tracekit", command, *run.arguments, *arguments]))
