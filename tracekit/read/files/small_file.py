"""Files that a user names beside a run, such as a file of SQL: small regular files."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import BinaryIO

__all__ = ["read_small_file", "read_small_stream"]

_MOST_BYTES = 64 << 20


def read_small_file(path: Path) -> bytes:
    """Return the content of a file. Raises OSError if it cannot be read, is no regular file, or is over 64 MiB long.

    A pipe would be waited for, and a device may have no end.
    """
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    with path.open("rb") as stream:
        return read_small_stream(stream, str(path))


def read_small_stream(stream: BinaryIO, name: str) -> bytes:
    """Return what is left of a stream, such as stdin. Raises OSError, with the name, if it is over 64 MiB long."""
    content = stream.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise OSError(errno.EFBIG, f"over {_MOST_BYTES >> 20} MiB long", name)
    return content
