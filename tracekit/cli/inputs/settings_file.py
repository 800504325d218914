"""The file of a project's settings: `tracekit.toml`, or the table `[tool.tracekit]` of `pyproject.toml`.

It is the nearest one in the current folder or a folder above it. `tracekit --config FILE` and `TRACEKIT_CONFIG` name
another one, and `TRACEKIT_CONFIG=0` none.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracekit.errors import InputError, UsageError
from tracekit.read.files.small_file import read_small_file

__all__ = ["CONFIG_VARIABLE", "SettingsFile", "find_settings_file"]

CONFIG_VARIABLE = "TRACEKIT_CONFIG"
_NAME = "tracekit.toml"
_PROJECT = "pyproject.toml"


@dataclass(frozen=True, kw_only=True)
class SettingsFile:
    """The settings of a file, as they are written.

    Attributes:
        path: absolute; relative paths in it are below its folder.
        content: the table of tracekit.
    """

    path: Path
    content: Mapping[str, Any]


def find_settings_file(named: str | None = None, folder: Path | None = None) -> SettingsFile | None:
    """Return the file that is `named`, by default the nearest at or above `folder`; None without one.

    named: of the option; by default that of `TRACEKIT_CONFIG`. "0" is none. folder: by default the current one.

    Raises UsageError when the named file is not there or has no settings, or when a file is no TOML. Raises InputError
    when it cannot be read.
    """
    named = named or os.environ.get(CONFIG_VARIABLE) or None
    if named == "0":
        return None
    if named is not None:
        path = Path(named).expanduser().absolute()
        try:
            if not path.is_file():
                raise UsageError(f"{named}: no such file of settings", hint="name a tracekit.toml, or 0 for none")
        except OSError as error:  # such as a folder above it that may not be entered
            raise InputError(f"{named}: {error.strerror or error}", hint="check the path and its permissions") from None
        settings = _read(path)
        if settings is None:
            raise UsageError(f"{named}: it has no table [tool.tracekit]", hint="add it, or name a tracekit.toml")
        return settings
    start = (folder or Path.cwd()).absolute()
    for place in (start, *start.parents):
        for name in (_NAME, _PROJECT):
            if (place / name).is_file() and (settings := _read(place / name)) is not None:
                return settings
    return None


def _read(path: Path) -> SettingsFile | None:
    """Return the settings of a file; None of a `pyproject.toml` without any."""
    try:
        content = read_small_file(path)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}", hint="check the file and its permissions") from None
    is_project = path.name == _PROJECT
    if is_project and b"tracekit" not in content:
        return None
    import tomllib

    try:
        table: Any = tomllib.loads(content.decode())
        json.dumps(table, default=str)  # messages write values, and hexadecimal numbers may have more digits than those
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: no TOML, which is UTF-8: {error}", hint="save it as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: no TOML: {error}", hint="mend that line") from None
    except ValueError:
        raise UsageError(f"{path}: a number has too many digits", hint="write a number of at most 18 digits") from None
    except RecursionError:
        raise UsageError(f"{path}: tables or lists in it are nested too deeply", hint="no setting needs that") from None
    if is_project:
        tools = table.get("tool")
        table = tools.get("tracekit") if isinstance(tools, dict) else None
        if table is None:
            return None
        if not isinstance(table, dict):
            raise UsageError(f"{path}: tool.tracekit is no table", hint="write [tool.tracekit] and the keys below it")
    return SettingsFile(path=path, content=table)
