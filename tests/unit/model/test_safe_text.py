"""Text from traces on a terminal."""

from __future__ import annotations

import json

from tracekit.model.texts import safe_json, safe_lines, safe_text, unicode_text


def test_safe_text_escapes_what_a_terminal_would_obey() -> None:
    assert safe_text("plain 中文 é — 😀") == "plain 中文 é — 😀"
    assert safe_text("\x1b[2J\r\n\t\x7f\x9b") == "\\x1b[2J\\x0d\\x0a\\x09\\x7f\\x9b"
    assert safe_text("\u202e\u2066\u200b\ufeff\ud800\U000e0001") == "\\u202e\\u2066\\u200b\\ufeff\\ud800\\U000e0001"


def test_what_is_no_unicode_becomes_question_marks() -> None:
    assert unicode_text("run\udcff\ud800 中😀") == "run?? 中😀"


def test_lines_end_only_where_the_text_has_line_ends() -> None:
    assert safe_text("a\u2028b\u2029c\x85d") == "a\\u2028b\\u2029c\\x85d"
    assert safe_lines("a\r\nb\x1b\n") == "a\\x0d\nb\\x1b\n"


def test_json_stays_what_it_is() -> None:
    document = json.dumps({"\x7f": "\x1b\u202e"})
    assert json.loads(safe_json(document)) == {"\x7f": "\x1b\u202e"}
    assert safe_json(document).isprintable()
