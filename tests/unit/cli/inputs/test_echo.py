"""The one place where commands write to the terminal."""

from __future__ import annotations

import json
import sys

import pytest

from tracekit.cli.inputs.echo import echo, echo_drawn, echo_json, echo_traceback, echo_workflow_commands


def test_a_message_is_one_line_without_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    echo("a\x1b[31m\nb\u202e")
    echo("\x9b", err=True)
    assert capsys.readouterr() == ("a\\x1b[31m\\x0ab\\u202e\n", "\\x9b\n")


def test_only_styles_are_left_of_what_is_drawn(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    echo_drawn("\x1b[1;31ma\x1b[0m \x1b[2J\x1b]0;t\x07\nb\x9b1m\r\n")
    assert capsys.readouterr().out == "\x1b[1;31ma\x1b[0m \\x1b[2J\\x1b]0;t\\x07\nb\\x9b1m\\x0d\n"


def test_a_traceback_has_no_styles(capsys: pytest.CaptureFixture[str]) -> None:
    echo_traceback(ValueError("\x1b[31m\na"))
    assert capsys.readouterr().err == "ValueError: \\x1b[31m\na\n"


def test_no_line_is_a_command_of_a_workflow(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    echo_drawn("::error::a\n  ::warning::b a::b\nc ##[error]d\n")
    echo("::notice::e")
    echo_json('{"name": "##[error]f\x7f"}\n')
    echo_workflow_commands("::error::g\n")
    *text, document, annotation = capsys.readouterr().out.splitlines()
    assert text == ["\\x3a:error::a", "  \\x3a:warning::b a::b", "c \\x23#[error]d", "\\x3a:notice::e"]
    assert json.loads(document) == {"name": "##[error]f\x7f"}
    assert "##[" not in document
    assert annotation == "::error::g"
