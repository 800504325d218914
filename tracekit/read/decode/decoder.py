"""One trace file to columns, by the decoder that is chosen."""

from __future__ import annotations

import importlib
from functools import cache
from typing import Literal, Protocol

from tracekit.model.events import DecodedTrace
from tracekit.native_choice import use_native
from tracekit.read.decode import portable
from tracekit.read.files.storage import TracePath

__all__ = ["Decoder", "chosen_decoder", "decode", "has_native_decoder"]

Decoder = Literal["native", "portable"]


def decode(path: TracePath, *, extra_args: bool = False) -> DecodedTrace:
    """Decode one trace file. `extra_args`: keep all arguments of its events.

    Raises InputError when nothing in the file can be used.
    """
    native = _native_decode() if chosen_decoder() == "native" else None
    decoded = None if native is None else native(path, extra_args=extra_args)
    return portable.decode(path, extra_args=extra_args) if decoded is None else decoded


def chosen_decoder() -> Decoder:
    """Return which decoder is used. Raises UsageError when $TRACEKIT_NATIVE cannot be followed."""
    return "native" if use_native("decoder", is_built=has_native_decoder()) else "portable"


def has_native_decoder() -> bool:
    """Whether the native decoder was built and loads; `tracekit doctor` says why not."""
    return _native_decode() is not None


class _NativeDecode(Protocol):
    def __call__(self, path: TracePath, *, extra_args: bool = False) -> DecodedTrace | None: ...


@cache
def _native_decode() -> _NativeDecode | None:
    try:
        native: _NativeDecode = importlib.import_module("tracekit.read.decode.native").decode
    except ImportError as error:
        if error.name != "tracekit.read.decode.native._scanner":
            raise
        return None
    return native
