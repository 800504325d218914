"""Text from traces and of paths, made fit for terminals, which it must not control, and for files in UTF-8."""

from __future__ import annotations

import unicodedata
from typing import Literal

__all__ = ["safe_json", "safe_lines", "safe_text", "shortened", "unicode_text"]

_SEPARATORS = frozenset({"Zl", "Zp"})  # of lines and paragraphs
_DELETE = "\x7f"


def safe_text(text: str) -> str:
    """Return `text` with control, format (such as bidirectional overrides) and unassigned characters escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or _is_harmless(c) else _visible(c) for c in text)


def safe_lines(text: str) -> str:
    """Return `safe_text` of each line of `text`."""
    return "\n".join(map(safe_text, text.split("\n")))


def safe_json(text: str) -> str:
    """Return JSON that is ASCII, as of `json.dumps`, with the one control character escaped that may stand in it."""
    assert text.isascii()
    return text.replace(_DELETE, "\\u007f")


def shortened(text: str, most: int, *, keep: Literal["start", "ends", "end"] = "start") -> str:
    """Return a text of at most so many characters, an ellipsis among them where something is left out."""
    if len(text) <= most:
        return text
    after = {"start": 0, "ends": (most - 1) // 2, "end": most - 1}[keep]
    return f"{text[: most - 1 - after]}…{text[len(text) - after :]}"


def unicode_text(text: str) -> str:
    """Return `text` with a question mark for each part that is no Unicode: bytes of a path, lone surrogates of JSON."""
    return text.encode("utf-8", "replace").decode()


def _is_harmless(character: str) -> bool:
    category = unicodedata.category(character)
    return category[0] != "C" and category not in _SEPARATORS


def _visible(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
