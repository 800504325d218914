"""What each kernel of a run counts as, as text: communication first, then the longest of the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tracekit.analysis.events.communication_rules import COMPUTE
from tracekit.analysis.kernel_list import COPY, KernelUse
from tracekit.model.quantities import milliseconds
from tracekit.model.run import Run
from tracekit.render.console import headline, next_command, statement, table, write

__all__ = ["KernelTable"]

_OTHERS_SHOWN = 20
_GAP, _MARGIN = 2, 2  # between columns, and around the table
_SHORTEST_NAME = 20
_LONGEST_RULE = 17


@dataclass(frozen=True, kw_only=True)
class KernelTable:
    """`width` in characters; `color` writes ANSI styles."""

    width: int = 80
    color: bool = False

    def render(self, run: Run, uses: Sequence[KernelUse]) -> str:
        parts: list[object] = [headline(run, self.width), ""]
        if not uses:
            parts.append(statement("info", "nothing ran on a device: the ranks computed on CPUs"))
        communication = [use for use in uses if use.kind not in (COMPUTE, COPY)]
        others = [use for use in uses if use.kind in (COMPUTE, COPY)]
        total_ns = sum(use.total_ns for use in uses)
        for title, rows in (("Communication", communication), ("Compute and copies", others[:_OTHERS_SHOWN])):
            if rows:
                parts += self._table(title, rows, total_ns)
        if len(others) > _OTHERS_SHOWN:
            left_ns = sum(use.total_ns for use in others[_OTHERS_SHOWN:])
            text = f"{len(others) - _OTHERS_SHOWN} more functions compute or copy, {milliseconds(left_ns)} ms"
            parts.append(statement("info", text))
        text = "a rule of yours comes first: --communication-rule REGEX=KIND, or REGEX=compute"
        parts += [statement("info", text), "", next_command("analyze", run)]
        return write(parts, width=self.width, color=self.color)

    def _table(self, title: str, uses: Sequence[KernelUse], total_ns: int) -> list[object]:
        columns = ("function", "counts as", "rule for", "count", "time", "of all")
        others = [
            (
                use.kind,
                _end(use.rule, _LONGEST_RULE) or "-",
                f"{use.count:,}",
                milliseconds(use.total_ns),
                f"{use.total_ns / total_ns:.0%}" if total_ns else "n/a",
            )
            for use in uses
        ]
        taken = sum(max(map(len, column)) + _GAP for column in zip(columns[1:], *others, strict=True))
        room = max(self.width - taken - _MARGIN, _SHORTEST_NAME)
        rows = [(_name(use.function, room), *cells) for use, cells in zip(uses, others, strict=True)]
        return table(f"{title} (ms, sums over all that was recorded)", columns, rows, left=3)


def _name(function: str, room: int) -> str:
    """Return the name in `room` characters: of a qualified name the end says most, of another one the beginning."""
    if len(function) <= room or "::" in function:
        return _end(function, room)
    return function[: room - 1] + "…"


def _end(text: str, room: int) -> str:
    return text if len(text) <= room else "…" + text[1 - room :]
