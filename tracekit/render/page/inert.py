"""Make the texts of a run harmless for a page: no control characters, no great length, no end of a script element."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, TypeVar

from tracekit.model.safe_text import safe_text, shortened
from tracekit.render.page.contract import MOST_CHARACTERS, MOST_IN_COMMAND

__all__ = ["inert", "script_json"]

T = TypeVar("T")

_WITH_COMMAND = ("open_command", "markdown")
_PLAIN = (int, float, type(None))  # most values are: they are not worth a call


def inert(value: T) -> T:
    """Return a copy of plain values whose texts have no control or format characters and are not long.

    Line breaks stay. A command may be longer than other texts, as it would be another one if its end were cut off.
    """
    return _inert(value, MOST_CHARACTERS)  # type: ignore[no-any-return]


def _inert(value: Any, most: int) -> Any:
    if isinstance(value, str):
        return _inert_text(value, most)
    if isinstance(value, dict):
        return {
            _inert_text(key, MOST_CHARACTERS) if isinstance(key, str) else key: item
            if isinstance(item, _PLAIN)
            else _inert(item, MOST_IN_COMMAND if key in _WITH_COMMAND else most)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [item if isinstance(item, _PLAIN) else _inert(item, most) for item in value]
    return value


@lru_cache(1 << 16)
def _inert_text(text: str, most: int) -> str:
    if text.isascii() and text.isprintable() and len(text) <= most:
        return text
    text = "\n".join(safe_text(line) for line in text[: most + 1].split("\n"))
    return shortened(text, most)


def script_json(value: object) -> str:
    """Return JSON that can stand in a script element: it has no `<`, and no character beyond ASCII.

    U+2028 and U+2029, which end a line in old scripts, are escaped as all others are.
    """
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
