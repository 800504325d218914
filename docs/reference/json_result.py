"""The fields of the JSON result, as Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from docs.reference.json_fields import OBJECTS, ROWS, TOP
from docs.reference.markdown import code, table
from tracekit.model.notes import NOTE_IDS

__all__ = ["json_pages"]


def json_pages() -> str:
    """Return a table of the keys at the top, a chapter for each object, and the kinds of notes."""
    return "\n\n".join(_chapters())


def _chapters() -> Iterator[str]:
    yield "## Keys"
    keys = [(code(key.name), code(key.section or ""), _linked(key.type, key.name), key.meaning) for key in TOP]
    yield table(("key", "section", "type", "meaning"), keys)
    for path, values in OBJECTS.items():
        yield f"## {path}"
        rows = [
            (code(value.name), _linked(value.type, f"{path}.{value.name}"), value.unit, value.meaning)
            for value in values
        ]
        yield table(("field", "type", "unit", "meaning"), rows)
    yield "## Kinds of notes"
    yield ", ".join(map(code, sorted(NOTE_IDS))) + "."


def _linked(kind: str, path: str) -> str:
    """Return the type, with a link to the fields of the object or the columns of the rows."""
    if path in ROWS:
        return f"[{kind.replace('list of objects', 'rows')}](tables.md#{ROWS[path]})"
    described = next((each for each in (path, f"{path}[]") if each in OBJECTS), None)
    return kind if described is None else f"[{kind}](#{''.join(c for c in described if c not in '.[]')})"
