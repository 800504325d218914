"""What tracekit's SQL views hold: each view and column with its meaning, from the comments above them."""

from __future__ import annotations

import re
from dataclasses import dataclass

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


def _text(comment: str) -> str:
    return " ".join(line.strip().removeprefix("--").strip() for line in comment.splitlines()).strip()
