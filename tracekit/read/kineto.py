"""One trace file to columns: the place where a decoder is chosen."""

from __future__ import annotations

from pathlib import Path

from tracekit.model.events import DecodedTrace
from tracekit.read import portable

__all__ = ["DECODER", "decode"]

DECODER = "portable"


def decode(path: Path) -> DecodedTrace:
    """Decode one trace file. Raises InputError when it cannot be used at all."""
    return portable.decode(path)
