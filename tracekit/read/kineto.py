"""One trace file to columns: the place where a decoder is chosen."""

from __future__ import annotations

from tracekit.model.events import DecodedTrace
from tracekit.read import portable
from tracekit.read.storage import TracePath

__all__ = ["DECODER", "decode"]

DECODER = "portable"


def decode(path: TracePath) -> DecodedTrace:
    """Decode one trace file. Raises InputError when it cannot be used at all."""
    return portable.decode(path)
