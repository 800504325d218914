"""Escape text from traces, so that it cannot control a terminal."""

from __future__ import annotations

import unicodedata

__all__ = ["safe_text"]


def safe_text(text: str) -> str:
    """Return `text` with control, format (such as bidirectional overrides) and unassigned characters escaped."""
    return "".join(c if unicodedata.category(c)[0] != "C" else _visible(c) for c in text)


def _visible(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
