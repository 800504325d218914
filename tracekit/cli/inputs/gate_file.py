"""The gates of a project: the table `gates` in its file of settings (`settings_file`), or in a file that is named."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tracekit.cli.inputs.settings import LEFT_TO_CHECK
from tracekit.cli.inputs.settings_file import SettingsFile, find_settings_file
from tracekit.errors import UsageError

__all__ = ["GateTable", "find_gates", "read_gates"]

GateTable = tuple[Mapping[str, object], str]
"""The table, and what to call it in messages: the file with the table's name."""


def find_gates(config: str | None = None) -> GateTable | None:
    """Return the gates of the settings that hold; None if there are none.

    config: the file that `tracekit --config` names. Raises what `find_settings_file` raises, and UsageError for gates
    that are no table.
    """
    file = find_settings_file(config)
    return None if file is None else _table(file)


def read_gates(path: Path) -> GateTable:
    """Return the gates of a file. Raises what `find_gates` raises, and UsageError if it is no file or has no gates."""
    if not path.is_file():
        raise UsageError(f"{path}: no such file of gates", hint="name a TOML file with [gates.step_time] and a limit")
    table = find_gates(str(path))
    if table is None:
        raise UsageError(f"{path}: it has no table of gates", hint="write [gates.step_time] with a limit")
    return table


def _table(file: SettingsFile) -> GateTable | None:
    value = file.content.get(LEFT_TO_CHECK)
    if value is None:
        return None
    is_near = file.path.is_relative_to(Path.cwd())
    path = file.path.relative_to(Path.cwd()) if is_near else file.path
    source = f"{path} [{'tool.tracekit.' if path.name == 'pyproject.toml' else ''}{LEFT_TO_CHECK}]"
    if not isinstance(value, Mapping):
        raise UsageError(f"{source}: it is no table", hint="write [gates.step_time] and a limit, such as max = '200ms'")
    return value, source
