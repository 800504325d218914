"""Text from traces, made harmless for a terminal."""

from __future__ import annotations

import unicodedata

__all__ = ["safe_text"]


def safe_text(text: str) -> str:
    """`text` with control, format (bidirectional overrides among them) and unassigned characters made visible."""
    return "".join(c if unicodedata.category(c)[0] != "C" else _visible(c) for c in text)


def _visible(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
