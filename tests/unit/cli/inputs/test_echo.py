"""The one place where commands write to the terminal."""

from __future__ import annotations

import json

import pytest

from tracekit.cli.inputs.echo import echo, echo_json, echo_workflow_commands
from tracekit.model.safe_text import SafeText


def test_text_is_escaped_line_by_line(capsys: pytest.CaptureFixture[str]) -> None:
    echo("a\x1b[31m\nb\u202e")
    echo(SafeText("a\tb\n"), nl=False)
    echo("\x9b", err=True)
    assert capsys.readouterr() == ("a\\x1b[31m\nb\\u202e\na\tb\n", "\\x9b\n")


def test_no_line_is_a_command_of_a_workflow(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    echo("::error::a\n  ::warning::b a::b\nc ##[error]d")
    echo(SafeText("::notice::e"))
    echo_json('{"name": "##[error]f\x7f"}\n')
    echo_workflow_commands(SafeText("::error::g\n"))
    *text, document, annotation = capsys.readouterr().out.splitlines()
    assert text == ["\\x3a:error::a", "  \\x3a:warning::b a::b", "c \\x23#[error]d", "\\x3a:notice::e"]
    assert json.loads(document) == {"name": "##[error]f\x7f"}
    assert "##[" not in document
    assert annotation == "::error::g"
