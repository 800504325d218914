"""Where the gates of a project stand: `[gates]` of tracekit.toml, or `[tool.tracekit.gates]` of pyproject.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

from tracekit.errors import UsageError

__all__ = ["GateTable", "find_gates", "read_gates"]

_PLACES: Mapping[str, tuple[str, ...]] = {
    "tracekit.toml": ("gates",),
    "pyproject.toml": ("tool", "tracekit", "gates"),
}

GateTable = tuple[Mapping[str, object], str]
"""The table, and what to call it in messages: the file with the table's name."""


def find_gates(folder: Path) -> GateTable | None:
    """Return the gates of the first file in a folder that has any; None if there are none.

    Raises UsageError for a file that cannot be read.
    """
    files = [folder / name for name in _PLACES if (folder / name).is_file()]
    return next((table for file in files if (table := _table(file)) is not None), None)


def read_gates(file: Path) -> GateTable:
    """Return the gates of a file. Raises UsageError if it cannot be read or has none."""
    table = _table(file)
    if table is None:
        raise UsageError(f"{file}: it has no table [{'.'.join(_keys(file))}]", hint="add one, or give another file")
    return table


def _keys(file: Path) -> tuple[str, ...]:
    return _PLACES.get(file.name, _PLACES["tracekit.toml"])


def _table(file: Path) -> GateTable | None:
    try:
        value: object = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror or error}", hint="give a file with gates") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: no valid TOML: {error}", hint="correct the file") from None
    for key in _keys(file):
        value = value.get(key) if isinstance(value, Mapping) else None
    if value is None:
        return None
    source = f"{file} [{'.'.join(_keys(file))}]"
    if not isinstance(value, Mapping):
        raise UsageError(f"{source}: it is no table", hint="write [gates.step_time] and a limit, such as max = '200ms'")
    return value, source
