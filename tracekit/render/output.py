"""Files that tracekit writes for the user: whole or not at all, and never over something else by accident."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from tracekit.errors import OutputError

__all__ = ["new_file"]


@contextmanager
def new_file(path: Path, *, force: bool = False) -> Iterator[BinaryIO]:
    """A stream whose content becomes `path` when the block ends without an exception.

    Raises OutputError when `path` exists and `force` is False, is a link or no file, or cannot be written.
    """
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise OutputError(f"{path}: a link or not a regular file", hint="choose another name")
    if path.exists() and not force:
        raise OutputError(f"{path}: exists already", hint="choose another name, or overwrite it with --force")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    except OSError as error:
        raise OutputError(f"{path}: {error.strerror or error}", hint="check the folder and its permissions") from error
    try:
        with os.fdopen(descriptor, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).chmod(0o666 & ~_umask())
        Path(temporary).replace(path)
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise OutputError(f"{path}: {error.strerror or error}", hint="check the space on the disk") from error
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
