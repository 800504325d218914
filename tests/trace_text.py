"""How built traces are written: the keys, order and white space of Kineto's files, or of what other writers do."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from typing import Any, Literal

Layout = Literal["kineto", "compact", "pretty", "crlf", "array"]
Packing = Literal["plain", "gz", "members"]
Microseconds = int | float


def pack(text: bytes, packing: Packing) -> bytes:
    """Return the text packed. `members` is gzip in several members, as writers that append produce it."""
    if packing == "plain":
        return text
    if packing == "gz":
        return gzip.compress(text, mtime=0)
    third = len(text) // 3 + 1
    return b"".join(gzip.compress(text[i : i + third], mtime=0) for i in range(0, len(text), third))


def decimal(microseconds: Microseconds) -> Decimal:
    return Decimal(round(microseconds * 1000)).scaleb(-3)


def event_text(event: dict[str, Any], layout: Layout) -> str:
    if layout == "compact":
        return "{" + ",".join(f'"{key}":{_value_text(value, compact=True)}' for key, value in event.items()) + "}"
    if layout == "pretty":
        lines = json.dumps({k: v for k, v in event.items() if not isinstance(v, Decimal)}, indent=2).splitlines()
        stamps = [f'  "{key}": {value},' for key, value in event.items() if isinstance(value, Decimal)]
        return "\n".join(("    " + line) for line in [lines[0], *stamps, *lines[1:]])
    text = ",\n".join(f'    "{key}": {_value_text(value)}' for key, value in event.items() if key != "args")
    if "args" in event:  # Kineto puts this comma on its own line
        text += f'\n    ,\n    "args": {{\n      {_value_text(event["args"])[1:-1]}\n    }}'
    return "  {\n" + text + "\n  }"


def _value_text(value: Any, *, compact: bool = False) -> str:
    if isinstance(value, Decimal):
        return str(value)
    return json.dumps(value, separators=(",", ":")) if compact else json.dumps(value)
