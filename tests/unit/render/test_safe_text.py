"""Text from traces on a terminal."""

from __future__ import annotations

from tracekit.render.safe_text import safe_text


def test_safe_text_escapes_what_a_terminal_would_obey() -> None:
    assert safe_text("plain 中文 é — 😀") == "plain 中文 é — 😀"
    assert safe_text("\x1b[2J\r\n\t\x7f\x9b") == "\\x1b[2J\\x0d\\x0a\\x09\\x7f\\x9b"
    assert safe_text("\u202e\u2066\u200b\ufeff\ud800\U000e0001") == "\\u202e\\u2066\\u200b\\ufeff\\ud800\\U000e0001"
