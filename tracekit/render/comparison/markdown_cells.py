"""Text of a run in Markdown: neither markup, nor a link, nor a mention of a person or an issue."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tracekit.render.safe_text import safe_text

__all__ = ["markdown_folded", "markdown_table", "markdown_text"]

_MOST_CHARACTERS = 600  # of one text
_MARKUP = re.compile(r"([\\`*\[\]<>|~$&]|(?<![0-9A-Za-z])_|_(?![0-9A-Za-z])|:(?=//)|(?<=www)\.)")
_MENTION = re.compile(r"(@|#)(?=\w)")


def markdown_text(text: str) -> str:
    """Return text that shows in Markdown as it is, in one line. What is very long ends in an ellipsis."""
    text = safe_text(" ".join(text.split()))
    text = f"{text[: _MOST_CHARACTERS - 1]}…" if len(text) > _MOST_CHARACTERS else text
    # GitHub looks for mentions and issues after it has removed backslashes: an empty comment parts them.
    return _MENTION.sub(r"\1<!-- -->", _MARKUP.sub(r"\\\1", text))


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1) -> list[str]:
    """Return the lines of a table. The first `left` columns are text, the others numbers."""
    marks = ["---" if at < left else "---:" for at in range(len(columns))]
    cells = [[markdown_text(cell) for cell in row] for row in (columns, *rows)]
    lines = [f"| {' | '.join(row)} |" for row in cells]
    return [lines[0], f"| {' | '.join(marks)} |", *lines[1:]]


def markdown_folded(title: str, content: Sequence[str]) -> list[str]:
    """Return lines that a reader opens; nothing without content."""
    return [f"<details><summary>{title}</summary>", "", *content, "", "</details>", ""] if content else []
