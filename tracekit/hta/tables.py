"""HTA's tables as text, JSON or CSV."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import tracekit
from tracekit.model.safe_text import safe_text, shortened, unicode_text
from tracekit.render.json_result import SCHEMA_VERSION
from tracekit.render.query_result import query_csv, query_text

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["hta_csv", "hta_json", "hta_text", "json_document"]

_SHOWN_ROWS = 20
_LONGEST_TEXT = 32

Answer = tuple[Mapping[str, "pd.DataFrame"], str, Sequence[str]]
"""Of one analysis: its tables by name, HTA's error or "", and HTA's remarks."""


def hta_text(answers: Mapping[str, Answer], *, width: int, color: bool) -> str:
    """Return the first rows of each table, HTA's errors and, where there is no table, HTA's remarks."""
    parts = []
    for name, (tables, error, remarks) in answers.items():
        for title, frame in tables.items():
            columns, rows = _columns_and_rows(frame.head(_SHOWN_ROWS))
            short = [[_shorten(cell) for cell in row] for row in rows]
            *lines, _ = query_text(columns, short, width=width, color=color).splitlines()
            parts.append("\n".join([f"{name}: {safe_text(title)}", *lines, _count(len(frame)), ""]))
        if error:
            parts.append(f"{name}: HTA fails with {safe_text(error)}\n")
        elif not tables:
            reason = safe_text(remarks[-1]) if remarks else "no reason given"
            parts.append(f"{name}: HTA has no result ({reason})\n")
    return "\n".join(parts)


def hta_json(answers: Mapping[str, Answer], *, path: str) -> str:
    """Return a JSON object; each table is a list of objects."""
    analyses = {
        name: {
            "tables": {title: _objects(frame) for title, frame in tables.items()},
            "error": error or None,
            "remarks": [*remarks],
        }
        for name, (tables, error, remarks) in answers.items()
    }
    return json_document(path, analyses=analyses)


def json_document(path: str, **content: Any) -> str:
    """Return a JSON object about the run at `path`."""
    head = {"schema_version": SCHEMA_VERSION, "tracekit_version": tracekit.__version__, "path": unicode_text(path)}
    return json.dumps(head | content, indent=1, allow_nan=False) + "\n"


def hta_csv(frame: pd.DataFrame) -> str:
    """Return a table as CSV."""
    return query_csv(*_columns_and_rows(frame))


def _shorten(cell: Any) -> Any:
    """Return a cell for a terminal: six digits, and the beginning of a long text."""
    if isinstance(cell, float):
        return float(f"{cell:.6g}")
    return shortened(cell, _LONGEST_TEXT) if isinstance(cell, str) else cell


def _count(rows: int) -> str:
    shown = f" (the first {_SHOWN_ROWS} are shown; -o FILE.csv or FILE.json has all)" if rows > _SHOWN_ROWS else ""
    return f"{rows:,} row{'s' * (rows != 1)}{shown}"


def _objects(frame: pd.DataFrame) -> list[dict[str, Any]]:
    columns, rows = _columns_and_rows(frame)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def _columns_and_rows(frame: pd.DataFrame) -> tuple[list[str], list[list[Any]]]:
    columns = [[_cell(value) for value in frame[name].tolist()] for name in frame.columns]
    rows: Iterable[tuple[Any, ...]] = zip(*columns, strict=True)
    return [str(name) for name in frame.columns], [[*row] for row in rows]


def _cell(value: Any) -> Any:
    """Return a value of a table as an integer, a float, text or None."""
    if value is None or value != value:  # NaN alone differs from itself
        return None
    if isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if abs(value) != float("inf") else None
    return str(value)
