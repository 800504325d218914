"""How times, sizes, shares and counts are written as text, and how text from traces and paths is made safe to print.

Such text must not control a terminal, and must fit a file in UTF-8.
"""

from __future__ import annotations

import unicodedata
from typing import Literal

_SEPARATORS = frozenset({"Zl", "Zp"})  # of lines and paragraphs
_DELETE = "\x7f"


def milliseconds(nanoseconds: float, digits: int = 2, sign: str = "") -> str:
    """Return a time for a column or a sentence in milliseconds. sign: "+" where that of a positive one is written."""
    return f"{round(nanoseconds / 1e6, digits) + 0.0:{sign},.{digits}f}"  # never -0.00


def duration(nanoseconds: float, sign: str = "") -> str:
    """Return a time to the microsecond in the unit that it is usually said in: `12.3 us`, `1.234 ms`, `2.000001 s`."""
    if abs(nanoseconds) < 1_000_000:
        return f"{nanoseconds / 1e3:{sign}.1f} us"
    if abs(nanoseconds) < 1_000_000_000:
        return f"{milliseconds(nanoseconds, 3, sign)} ms"
    return f"{nanoseconds / 1e9:{sign}.6f} s"


def file_size(size_bytes: float) -> str:
    """Return the size with three digits and a decimal unit, 1 kB = 1000 bytes."""
    return scaled(size_bytes, "B")


def scaled(value: float, unit: str) -> str:
    """Return a number with three digits and a decimal prefix of its unit: `1.54 kB`, `312 TFLOP/s`."""
    prefixes = ["", "k", "M", "G", "T", "P", "E"]
    value = float(value)
    while value >= 1000 and len(prefixes) > 1:
        value, prefixes = value / 1000, prefixes[1:]
    return f"{value:.3g} {prefixes[0]}{unit}"


def figures(number: float) -> str:
    """Return a whole number in full, and any other with three digits."""
    if isinstance(number, int) or abs(number) >= 1000:
        return f"{number:,.0f}"
    return f"{number:.3g}" if number >= 0.01 or number <= 0 else "<0.01"


def percent(share: float, digits: int = 0, sign: str = "") -> str:
    """Return a share of 1 as a percentage. sign: "+" where that of a positive one is written."""
    return f"{(round(share, digits + 2) + 0.0) if sign else share:{sign}.{digits}%}"


def count_text(number: int, noun: str, plural: str | None = None) -> str:
    """Return `1 rank` or `2 ranks`. plural: where it is not the noun with an s."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


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
