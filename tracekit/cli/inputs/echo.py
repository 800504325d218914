"""The one place where commands write to the terminal: nothing that came from a trace can control it.

A message is one line, escaped here. What renderers draw has styles, which pass: `write` of `tracekit.render.console`
puts them on, after it has escaped the text.

Messages of a command that anonymises its run quote its arguments. So names in what the user has typed get pseudonyms.
"""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tracekit.model.texts import safe_json, safe_lines, safe_text

if TYPE_CHECKING:
    from tracekit.model.names.pseudonyms import Pseudonyms


_PSEUDONYMS = "tracekit.pseudonyms"  # keys in the metadata of click's context
_TYPED = "tracekit.typed"
_STYLE = re.compile(r"(\x1b\[[\d;]*m)")
# What the runner of GitHub takes for a command, in any output of a step: `::` first on a line, `##[` anywhere.
_WORKFLOW_COMMAND = re.compile(r"^(\s*):(?=:)|#(?=#\[)", re.MULTILINE)

_NAMES = {"--run": "job-x", "--annotation": "annotation-x"}
_PATHS = ("--config", "--gates", "--baseline", "--against", "--cache-dir")
_OUTPUTS = ("-o", "--output")
_PATH = "path-x"
_NO = ("", "0", "false", "no", "off", "n", "f")
_LEAST_OF_A_NAME = 3


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


def echo(message: str = "", *, err: bool = False) -> None:
    """Write a message to stdout, or stderr, as one line, in which ends of lines are escaped as well."""
    _write(_no_command(safe_text(shown(message))) + "\n", err=err)


def echo_drawn(text: str, *, err: bool = False) -> None:
    """Write lines to stdout, or stderr. Of what controls a terminal only styles are left."""
    parts = _STYLE.split(text)  # every second one is a style
    _write(_no_command("".join(part if i % 2 else safe_lines(part) for i, part in enumerate(parts))), err=err)


def echo_traceback(error: BaseException) -> None:
    """Write a traceback to stderr."""
    text = "".join(traceback.format_exception(error))
    _write(_no_command(safe_lines(shown(text))), err=True)


def echo_written(path: object, what: str = "") -> None:
    """Say on stderr, in one line, which file was written."""
    echo(f"wrote {path}{what}", err=True)


def echo_json(text: str) -> None:
    """Write a JSON document to stdout. What is escaped in it stays the same for those who parse it."""
    safe = safe_json(text)
    _write(safe.replace("##[", "#\\u0023[") if _is_read_by_runner() else safe)


def echo_workflow_commands(lines: str) -> None:
    """Write workflow commands of GitHub, in which all that came from elsewhere is escaped."""
    _write(lines)


def _is_read_by_runner() -> bool:
    return os.environ.get("GITHUB_ACTIONS") == "true"


def _no_command(text: str) -> str:
    if not _is_read_by_runner():
        return text
    return _WORKFLOW_COMMAND.sub(lambda match: f"{match[1] or ''}\\x{ord(match[0][-1]):02x}", text)


def _write(text: str, *, err: bool = False) -> None:
    try:
        click.echo(text, err=err, nl=False)  # noqa: TID251
    except UnicodeEncodeError as error:  # PYTHONIOENCODING names a coding that has no character for some of it
        known = text.encode(error.encoding, "replace").decode(error.encoding)
        click.echo(known, err=err, nl=False)  # noqa: TID251


def asks_for_pseudonyms(arguments: Sequence[str]) -> bool:
    """Return whether the command line or the environment asks for --anonymize. A file of settings is not read."""
    return "--anonymize" in arguments or os.environ.get("TRACEKIT_ANONYMIZE", "").strip().lower() not in _NO


def typed_names(arguments: Sequence[str]) -> dict[str, str]:
    """Return pseudonyms for the paths and names among the arguments of a command, and for the current folder.

    An argument with a slash counts as a path. A relative path of an output stays, as do very short texts.
    """
    names = dict.fromkeys(_with_folders(Path.cwd()), _PATH)
    for option, value in _values(arguments):
        if len(value) < _LEAST_OF_A_NAME:
            continue
        if option in _NAMES:
            names[value] = _NAMES[option]
        elif option in _PATHS or ("/" in value and (option not in _OUTPUTS or value[0] in "/~.")):
            path = Path(value)
            names |= dict.fromkeys((value, str(path), *_with_folders(path), *_with_folders(_absolute(path))), _PATH)
    return names


def _values(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each argument that is a value, with the option before it: "" if there is none."""
    before = ""
    for argument in arguments:
        option, sign, value = argument.partition("=")
        if argument.startswith("--"):
            if sign:
                yield option, value
            before = "" if sign else option
        elif argument.startswith("-o") and argument != "-o":
            yield "-o", argument.removeprefix("-o")
            before = ""
        elif argument.startswith("-") and argument != "-":
            before = argument
        else:
            yield before, argument
            before = ""


def _absolute(path: Path) -> Path:
    try:
        return path.expanduser().absolute()
    except RuntimeError:  # a user of that name is not known
        return path.absolute()


def _with_folders(path: Path) -> list[str]:
    """Return an absolute path and those of the folders above it; none for a relative one."""
    return [str(each) for each in (path, *path.parents) if path.is_absolute() and each != each.parent]
