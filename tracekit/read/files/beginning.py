"""The first bytes of the content of a file, by which its kind is told."""

from __future__ import annotations

import zlib
from pathlib import Path

__all__ = ["BEGINNING_BYTES", "beginning_of", "unpacked"]

BEGINNING_BYTES = 1 << 16
_GZIP = b"\x1f\x8b"


def beginning_of(path: Path) -> bytes:
    """Return at most `BEGINNING_BYTES` of a file, unpacked if it is gzip. Raises OSError, and zlib.error for damage."""
    with path.open("rb") as stream:
        return unpacked(stream.read(BEGINNING_BYTES))


def unpacked(beginning: bytes) -> bytes:
    """Return the first bytes of the content of a file that begins so. Raises zlib.error."""
    if not beginning.startswith(_GZIP):
        return beginning
    return zlib.decompressobj(wbits=31).decompress(beginning, BEGINNING_BYTES)
