"""The table of settings.

What is kept of one rank's configuration.
"""

from __future__ import annotations

from collections.abc import Sequence

from tracekit.analysis.table import Column, Table
from tracekit.model.metadata import Settings
from tracekit.model.summary import Part

__all__ = ["CONFIGURATION"]


SETTINGS = Table(
    "configuration",
    (
        Column("component", "str", "", "ddp, fsdp1, fsdp2, zero, pipeline, compile or precision."),
        Column("modules", "list[str]", "", 'Names of the modules for which it holds, "" is the outermost; none: all.'),
        Column("setting", "str", "", "The name under which a program sets it."),
        Column("value", "value?", "", "A number, text or boolean; null: None, that is not set."),
        Column("ranks", "list[int]", "", "The ranks that have this value."),
    ),
)


def _latest(windows: Sequence[tuple[Settings, ...]]) -> tuple[Settings, ...]:
    """Return the settings of the last recording that knows any: what a program changes is in effect from then on."""
    return next((settings for settings in reversed(windows) if settings), ())


CONFIGURATION: Part[tuple[Settings, ...]] = Part(
    name="configuration", type=tuple[Settings, ...], empty=tuple, merge=_latest
)
