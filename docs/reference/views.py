"""The SQL views of a merged trace, from the comments above them and above their columns."""

from __future__ import annotations

import re
from dataclasses import dataclass

from docs.reference.markdown import code, table
from tracekit.trace_processor.processor import views_sql

__all__ = ["View", "parse_views", "view_pages"]

_VIEW = re.compile(r"^((?:--[^\n]*\n)*)CREATE PERFETTO (?:VIEW|TABLE) (\w+)\(\n(.*?)^\) AS", re.MULTILINE | re.DOTALL)
_COLUMN = re.compile(r"((?:^ *--.*\n)+)^ *(\w+) (.*?),?$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class View:
    """A view.

    Attributes:
        columns: name, type and meaning of each.
    """

    name: str
    meaning: str
    columns: tuple[tuple[str, str, str], ...]


def parse_views(sql: str) -> list[View]:
    """Return the views of a text of SQL, in its order."""
    return [
        View(
            name=name,
            meaning=_text(comment),
            columns=tuple((column, kind, _text(meaning)) for meaning, column, kind in _COLUMN.findall(body)),
        )
        for comment, name, body in _VIEW.findall(sql)
    ]


def view_pages() -> str:
    """Return a chapter for each view."""
    chapters = []
    for view in parse_views(views_sql()):
        rows = [(code(name), code(kind), meaning) for name, kind, meaning in view.columns]
        chapters += [f"## {view.name}", view.meaning, table(("column", "type", "meaning"), rows)]
    return "\n\n".join(chapters)


def _text(comment: str) -> str:
    return " ".join(line.strip().removeprefix("--").strip() for line in comment.splitlines()).strip()
