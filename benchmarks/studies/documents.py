"""Tables of Markdown, and their places in documents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Row = tuple[str, ...]


def markdown(rows: Iterable[Row]) -> str:
    """Return the rows, the first of which is the heading, as a table of Markdown with columns of equal width."""
    table = list(rows)
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in table
    ]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]])


def between_marks(text: str, tables: Mapping[str, str]) -> str:
    """Return the text with each table between its marks `<!-- name -->` and `<!-- /name -->`.

    ValueError where a mark is missing.
    """
    for name, table in tables.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
        before, _, rest = text.partition(begin)
        _, found, after = rest.partition(end)
        if not found:
            raise ValueError(f"no place for the table {name}")
        text = f"{before}{begin}{table}\n{end}{after}"
    return text
