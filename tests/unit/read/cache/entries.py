"""Entries of a cache, stored and fetched by name of their trace."""

from __future__ import annotations

from pathlib import Path

from tracekit.read.cache.store import Cache, Entry, store


def entry_of(trace: Path, *parameters: object, base_dir: Path | None = None) -> Entry:
    entry = Cache(base_dir).entry_for([trace], parameters)
    assert entry is not None
    return entry


def stored(trace: Path, *parameters: object, base_dir: Path | None = None, data: bytes = b"result " * 100) -> Entry:
    entry = entry_of(trace, *parameters, base_dir=base_dir)
    assert Cache(base_dir).prepare(entry)
    store(entry, data)
    return entry


def fetched(trace: Path, *parameters: object, base_dir: Path | None = None) -> bytes | None:
    return Cache(base_dir).fetch(entry_of(trace, *parameters, base_dir=base_dir))


def files_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {".gitignore", "CACHEDIR.TAG"}
