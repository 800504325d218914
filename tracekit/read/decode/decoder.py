"""One trace file to columns: the place where a decoder is chosen."""

from __future__ import annotations

import importlib
import os
from functools import cache
from typing import Literal, Protocol

from tracekit.errors import UsageError
from tracekit.model.events import DecodedTrace
from tracekit.read.decode import portable
from tracekit.read.files.storage import TracePath

__all__ = ["VARIABLE", "Decoder", "decode", "decoder", "has_native"]

Decoder = Literal["native", "portable"]

VARIABLE = "TRACEKIT_DECODER"


def decode(path: TracePath, *, details: bool = False) -> DecodedTrace:
    """Decode one trace file; `details`: keep all arguments of its events. Raises InputError when it cannot be used at
    all."""
    native = _native_decode() if decoder() == "native" else None
    decoded = None if native is None else native(path, details=details)
    return portable.decode(path, details=details) if decoded is None else decoded


def decoder() -> Decoder:
    """The one in use: what $TRACEKIT_DECODER says, else the native one where it was built. Whatever else is compiled
    follows it.

    Raises UsageError when the variable names no decoder, or the native one and there is none.
    """
    wanted = os.environ.get(VARIABLE, "")
    if wanted not in ("", "native", "portable"):
        raise UsageError(f"{VARIABLE}={wanted}: no such decoder", hint="set it to native or portable, or not at all")
    if wanted == "native" and not has_native():
        hint = "unset the variable, or see why, and what to do: tracekit doctor"
        raise UsageError(f"{VARIABLE}=native: there is no native decoder", hint=hint)
    return "native" if wanted != "portable" and has_native() else "portable"


def has_native() -> bool:
    """Whether the native decoder was built and loads; `tracekit doctor` says why not."""
    return _native_decode() is not None


class _NativeDecode(Protocol):
    def __call__(self, path: TracePath, *, details: bool = False) -> DecodedTrace | None: ...


@cache
def _native_decode() -> _NativeDecode | None:
    try:
        found: _NativeDecode = importlib.import_module("tracekit.read.decode.native").decode
    except ImportError as error:
        if error.name != "tracekit.read.decode.native._scanner":
            raise
        return None
    return found
