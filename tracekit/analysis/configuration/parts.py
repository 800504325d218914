"""What is kept of one rank's configuration."""

from __future__ import annotations

from collections.abc import Sequence

from tracekit.model.metadata import Settings
from tracekit.model.summary import Part

__all__ = ["CONFIGURATION"]


def _latest(windows: Sequence[tuple[Settings, ...]]) -> tuple[Settings, ...]:
    """Return the settings of the last recording that knows any: what a program changes is in effect from then on."""
    return next((settings for settings in reversed(windows) if settings), ())


CONFIGURATION: Part[tuple[Settings, ...]] = Part(
    name="configuration", type=tuple[Settings, ...], empty=tuple, merge=_latest
)
