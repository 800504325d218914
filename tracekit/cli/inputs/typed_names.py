"""The names in what a user has typed: messages of a command that anonymises its run quote its arguments."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

__all__ = ["asks_for_pseudonyms", "typed_names"]

_NAMES = {"--run": "job-x", "--annotation": "annotation-x", "--scheduler": "host-x"}
_PATHS = ("--config", "--gates", "--baseline", "--against", "--links", "--cache-dir")
_OUTPUTS = ("-o", "--output")
_PATH = "path-x"
_NO = ("", "0", "false", "no", "off", "n", "f")
_LEAST_OF_A_NAME = 3


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
