"""Whose trace is this? From the cache, else from the file.

Comes in: a path. Goes out: what `peek` says of it. To find out can mean to inflate the whole file, for what stands at
its end; so the answer is kept.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from tracekit.read.cache import Cache, keep
from tracekit.read.codec import CodecError, pack, unpack
from tracekit.read.peek import TraceFile, peek

__all__ = ["identify"]


def identify(path: Path, cache: Cache | None) -> TraceFile:
    """`peek`, with its errors."""
    # What a killed capture left behind is identified by its folders, which are no part of a key.
    entry = None if cache is None or path.suffix == ".tmp" else cache.entry_for("identity", [path])
    if cache is None or entry is None:
        return peek(path)
    data = cache.fetch(entry)
    if data is not None:
        with suppress(CodecError):
            return replace(unpack(data, TraceFile), path=path)
    trace = peek(path)
    if cache.prepare(entry):
        with suppress(CodecError):
            keep(entry, pack(replace(trace, path=Path(path.name))))
    return trace
