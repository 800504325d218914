"""The one place where commands write to the terminal: nothing that came from a trace can control it.

`write` of `tracekit.render.console` escapes what it draws, and marks it as `SafeText`. All other text is escaped here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from tracekit.cli.inputs.typed_names import asks_for_pseudonyms, typed_names
from tracekit.model.safe_text import SafeText, safe_json, safe_lines, safe_text

if TYPE_CHECKING:
    from tracekit.model.names.pseudonyms import Pseudonyms

__all__ = [
    "echo",
    "echo_json",
    "echo_workflow_commands",
    "echo_written",
    "remember_arguments",
    "shown",
    "write_with",
]

_PSEUDONYMS = "tracekit.pseudonyms"  # keys in the metadata of click's context
_TYPED = "tracekit.typed"
# What the runner of GitHub takes for a command, in any output of a step: `::` first on a line, `##[` anywhere.
_WORKFLOW_COMMAND = re.compile(r"^(\s*):(?=:)|#(?=#\[)", re.MULTILINE)


def remember_arguments(context: click.Context, arguments: Sequence[str]) -> None:
    """Keep what was typed. If that asks for pseudonyms, messages have them even if the command cannot begin."""
    context.meta[_TYPED] = arguments
    if asks_for_pseudonyms(arguments):
        from tracekit.model.names.pseudonyms import Pseudonyms

        context.meta[_PSEUDONYMS] = replace(Pseudonyms.of_names({}), typed=typed_names(arguments))


def write_with(pseudonyms: Pseudonyms) -> None:
    """Let all messages of the command that runs have pseudonyms from now on, for what was typed too."""
    meta = click.get_current_context().meta
    meta[_PSEUDONYMS] = replace(pseudonyms, typed=typed_names(meta.get(_TYPED, ())))


def shown(text: str) -> str:
    """Return a message as it is written: with pseudonyms, if the command anonymises its run."""
    context = click.get_current_context(silent=True)
    pseudonyms: Pseudonyms | None = None if context is None else context.meta.get(_PSEUDONYMS)
    return text if pseudonyms is None else pseudonyms.text(text)


def echo(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Write text to stdout, or stderr. All but `SafeText` is escaped, line by line."""
    safe = text if isinstance(text, SafeText) else safe_lines(shown(text))
    if _is_read_by_runner():
        safe = _WORKFLOW_COMMAND.sub(lambda match: f"{match[1] or ''}\\x{ord(match[0][-1]):02x}", safe)
    _write(safe, err=err, nl=nl)


def echo_written(path: object, what: str = "") -> None:
    """Say on stderr, in one line, which file was written."""
    echo(SafeText(safe_text(shown(f"wrote {path}{what}"))), err=True)


def echo_json(text: str) -> None:
    """Write a JSON document to stdout. What is escaped in it stays the same for those who parse it."""
    safe = safe_json(text)
    _write(safe.replace("##[", "#\\u0023[") if _is_read_by_runner() else safe, err=False, nl=False)


def echo_workflow_commands(lines: SafeText) -> None:
    """Write workflow commands of GitHub, in which all that came from elsewhere is escaped."""
    _write(lines, err=False, nl=False)


def _is_read_by_runner() -> bool:
    return os.environ.get("GITHUB_ACTIONS") == "true"


def _write(text: str, *, err: bool, nl: bool) -> None:
    try:
        click.echo(text, err=err, nl=nl)  # noqa: TID251
    except UnicodeEncodeError as error:  # PYTHONIOENCODING names a coding that has no character for some of it
        known = text.encode(error.encoding, "replace").decode(error.encoding)
        click.echo(known, err=err, nl=nl)  # noqa: TID251
