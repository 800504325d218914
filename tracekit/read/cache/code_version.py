"""Which code this process runs: a cache gives back only what the same code has computed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import tracekit

__all__ = ["CODE_VERSION", "SUMMARY_FORMAT"]

SUMMARY_FORMAT = 2
"""Raise it with every change of what a summary means or of how it is packed."""

_PACKAGES = ("model", "read", "analysis")  # those that compute summaries


def code_version() -> str:
    """Return a digest of the release, the format, and the names and sizes of the files that compute summaries.

    Sizes notice most changes that came without a new number, and are equal on all hosts of a cluster. In a git checkout
    the times of the last changes count too: there every edit must count. Costs 1 ms; reading the files would cost ten.
    """
    package = Path(tracekit.__file__).parent
    is_checkout = (package.parent / ".git").exists()
    files: list[tuple[str, int, int]] = []
    with suppress(OSError):  # a package without a folder, or a file that an editor is replacing
        for entry in (entry for name in _PACKAGES for entry in _files_below(package / name)):
            status = entry.stat()
            files.append((entry.path[len(str(package)) :], status.st_size, status.st_mtime_ns if is_checkout else 0))
    version = f"{tracekit.__version__} {SUMMARY_FORMAT} {sorted(files)}"
    return hashlib.blake2b(version.encode(), digest_size=16).hexdigest()


def _files_below(folder: Path | str) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.is_dir():
                yield entry
            elif entry.name != "__pycache__":
                yield from _files_below(entry.path)


CODE_VERSION = code_version()
"""As the files were when this process began: they may be edited while it runs."""
