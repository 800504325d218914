"""The text of a file of another tracer: as a whole, and no longer than the limits allow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from tracekit.analysis.operation_tables.formats.table_limits import require_within
from tracekit.errors import InputError
from tracekit.read.files.inflate import TextChunks

__all__ = ["has_any", "read_bytes"]


def read_bytes(path: Path) -> bytes:
    """Return the text of a file, unpacked. Raises InputError if it cannot be read, is damaged, or beyond a limit."""
    return b"".join(_chunks(path))


def has_any(path: Path, markers: Sequence[str]) -> bool:
    """Return whether one of some texts is in a file. Raises InputError as `read_bytes` does."""
    sought = [marker.encode() for marker in markers]
    longest = max(map(len, sought))
    before = b""
    for chunk in _chunks(path):
        text = before + chunk
        if any(marker in text for marker in sought):
            return True
        before = text[-longest:]
    return False


def _chunks(path: Path) -> Iterator[bytes]:
    chunks, size = TextChunks(path), 0
    for chunk in chunks:
        size += len(chunk)
        require_within(path, "table_bytes", size)
        yield chunk
    if chunks.cut_off is not None:
        hint = "give a larger --limit" if chunks.cut_off.kind == "limit" else "copy or pack the file again"
        raise InputError(f"{path}: {chunks.cut_off.what}", hint=hint)
