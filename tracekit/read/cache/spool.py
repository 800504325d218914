"""Decoded traces written to a temporary folder, so that a later part of the same command need not decode them again.

This is not a cache. The folder belongs to one command: its own processes write the files, read each once, and delete
the folder in the end. So the files can be pickles: nobody else can put one there.
"""

from __future__ import annotations

import hashlib
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracekit.read.files.storage import TracePath

__all__ = ["DecodedSpool"]


@dataclass(frozen=True, kw_only=True)
class DecodedSpool:
    """One file a trace in `folder`, which exists."""

    folder: Path

    def put(self, path: TracePath, decoded: object) -> None:
        """Write what was made of the trace at `path`. Without room on the disk nothing is written."""
        file = self._file_of(path)
        try:
            with file.open("wb") as stream:
                # Since protocol 5 arrays are written from their memory and read into it, without a copy in between.
                pickle.dump(decoded, stream, protocol=5)
        except OSError:
            file.unlink(missing_ok=True)

    def pop(self, path: TracePath) -> Any:
        """Return what was put there for `path`, and delete the file. None where there is none."""
        file = self._file_of(path)
        try:
            with file.open("rb") as stream:
                return pickle.load(stream)  # noqa: S301 (only this command's processes write there)
        except FileNotFoundError:
            return None
        finally:
            file.unlink(missing_ok=True)

    def _file_of(self, path: TracePath) -> Path:
        return self.folder / hashlib.sha256(str(path).encode("utf-8", "surrogatepass")).hexdigest()
