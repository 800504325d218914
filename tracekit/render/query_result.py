"""Rows of a query as text, JSON or CSV.

Cells are integers, floats, text, bytes or None. Text is escaped so that it can neither control a terminal nor become a
formula in a spreadsheet.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from tracekit.errors import UsageError
from tracekit.model.texts import safe_text, unicode_text
from tracekit.render.console import write
from tracekit.render.files.tables import inert_text
from tracekit.render.json_result import json_document

SHOWN_ROWS = 200

_IN_A_CELL = re.compile(r"[^\t\n]+")

Rows = Sequence[Sequence[Any]]


def query_text(columns: Sequence[str], rows: Rows, *, width: int, color: bool) -> str:
    """Return the first 200 rows as a table, or as a block of lines a row where a table is wider than `width`."""
    heads = [safe_text(column) for column in columns]
    texts = [["NULL" if cell is None else safe_text(_plain(cell)) for cell in row] for row in rows[:SHOWN_ROWS]]
    drawn: list[object] = []
    if heads:
        widths = [max(map(cell_len, column)) for column in zip(heads, *texts, strict=True)]
        is_wide = sum(widths) + 2 * len(widths) > width
        drawn += _blocks(heads, texts) if is_wide else [_table(heads, texts, rows)]
    shown = f" (the first {SHOWN_ROWS} are shown; --csv and --json have all)" if len(rows) > SHOWN_ROWS else ""
    drawn.append(f"{len(rows):,} row{'s' * (len(rows) != 1)}{shown}")
    return write(drawn, width=width, color=color)


def query_json(columns: Sequence[str], rows: Rows, *, path: str) -> str:
    """Return a JSON object whose `rows` are objects. Raises UsageError when two columns have the same name."""
    repeated = [column for at, column in enumerate(columns) if column in columns[:at]]
    if repeated:
        raise UsageError(f"two columns are named {repeated[0]!r}", hint="tell them apart with AS, or take --csv")
    content = {
        "path": unicode_text(path),
        "columns": list(columns),
        "rows": [dict(zip(columns, map(_json_value, row), strict=True)) for row in rows],
    }
    return json_document(content, sort_keys=False)


def query_csv(columns: Sequence[str], rows: Rows) -> str:
    """Return the rows as CSV. NULL is an empty cell; an apostrophe precedes text that would become a formula.

    Control characters are escaped, but for tabs and line ends in a cell.
    """
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(map(_no_formula, columns))
    writer.writerows(["" if cell is None else _no_formula(cell) for cell in row] for row in rows)
    return stream.getvalue()


def _table(heads: Sequence[str], texts: Sequence[Sequence[str]], rows: Rows) -> Table:
    result = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1), collapse_padding=True)
    for at, head in enumerate(heads):
        is_text = any(isinstance(row[at], str | bytes) for row in rows[: len(texts)])
        result.add_column(Text(head), justify="left" if is_text else "right", no_wrap=True)
    for row in texts:
        result.add_row(*map(Text, row))
    return result


def _blocks(heads: Sequence[str], texts: Sequence[Sequence[str]]) -> list[object]:
    longest = max(map(cell_len, heads))
    lines: list[object] = []
    for number, row in enumerate(texts):
        lines.append(Text(f"row {number + 1}", style="bold"))
        lines += [f"  {head}{' ' * (longest - cell_len(head))}  {cell}" for head, cell in zip(heads, row, strict=True)]
    return lines


def _plain(cell: Any) -> str:
    return cell.hex() if isinstance(cell, bytes) else str(cell)


def _json_value(cell: Any) -> Any:
    if isinstance(cell, bytes):
        return cell.hex()
    return None if isinstance(cell, float) and not math.isfinite(cell) else cell


def _no_formula(cell: Any) -> Any:
    if isinstance(cell, bytes):
        return cell.hex()
    return inert_text(_IN_A_CELL.sub(lambda text: safe_text(text[0]), cell)) if isinstance(cell, str) else cell
