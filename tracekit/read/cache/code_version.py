"""Which code turns trace files into summaries: a digest of the sources, so that whoever edits them gets no old answer.

Comes in: the package's own files. Goes out: text that is equal for equal code.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import tracekit

__all__ = ["IMPORTED_CODE", "is_as_imported"]

_PACKAGES = ("model", "read", "analysis")


def is_as_imported() -> bool:
    """Whether the files still are what this process runs. Costs 2 ms."""
    return IMPORTED_CODE is not None and _digest_of_files() == IMPORTED_CODE


def _digest_of_files() -> str | None:
    digest = hashlib.blake2b(tracekit.__version__.encode(), digest_size=16)
    try:
        sources = list(_sources(Path(tracekit.__file__).parent))
        for name, content in sources:
            digest.update(f"{len(name)} {name} {len(content)} ".encode() + content)
    except OSError:
        return None
    return digest.hexdigest() if sources else None


def _sources(root: Path) -> Iterator[tuple[str, bytes]]:
    """Every file of the packages that make summaries, with compiled extensions, without Python's own cache."""
    for package in _PACKAGES:
        for path in sorted((root / package).rglob("*")):
            if path.parent.name != "__pycache__" and path.is_file():
                yield path.relative_to(root).as_posix(), path.read_bytes()


IMPORTED_CODE = _digest_of_files()
"""Of the code that this process runs: its files may be edited while it keeps running. None: they cannot be read."""
