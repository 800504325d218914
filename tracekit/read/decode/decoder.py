"""One trace file to columns, by the decoder that is chosen."""

from __future__ import annotations

import importlib
from functools import cache
from typing import Literal, Protocol

from tracekit.model.events import DecodedTrace
from tracekit.model.names.pseudonyms import Namer
from tracekit.native_choice import use_native
from tracekit.read.decode.written_events import WrittenEvents, from_decoded
from tracekit.read.files.storage import TracePath

Decoder = Literal["native", "portable"]


def decode(path: TracePath, *, extra_args: bool = False, namer: Namer | None = None) -> DecodedTrace:
    """Decode one trace file. `extra_args`: keep all arguments of its events. `namer`: replaces names.

    Raises InputError when nothing in the file can be used.
    """
    native = _native_decoder() if chosen_decoder() == "native" else None
    decoded = None if native is None else native.decode(path, extra_args=extra_args)
    if decoded is None:
        decoded = _decode_portably(path, extra_args=extra_args)
    if namer is None:
        return decoded
    from tracekit.read.decode.anonymous.trace import anonymized  # few runs are anonymised

    return anonymized(decoded, namer)


def decode_written(path: TracePath, *, namer: Namer | None = None) -> WrittenEvents:
    """Return the slices of one trace file as they are written. Raises what `decode` raises."""
    if namer is not None:
        return from_decoded(decode(path, extra_args=True, namer=namer))
    native = _native_decoder() if chosen_decoder() == "native" else None
    written = None if native is None else native.decode_written(path)
    return from_decoded(_decode_portably(path, extra_args=True)) if written is None else written


def _decode_portably(path: TracePath, *, extra_args: bool) -> DecodedTrace:
    from tracekit.read.decode import portable  # few files need it, and its import takes milliseconds

    return portable.decode(path, extra_args=extra_args)


def chosen_decoder() -> Decoder:
    """Return which decoder is used. Raises UsageError when $TRACEKIT_NATIVE cannot be followed."""
    return "native" if use_native("decoder", is_built=has_native_decoder()) else "portable"


def has_native_decoder() -> bool:
    """Whether the native decoder was built and loads; `tracekit doctor` says why not."""
    return _native_decoder() is not None


class _NativeDecoder(Protocol):
    def decode(self, path: TracePath, *, extra_args: bool = False) -> DecodedTrace | None: ...

    def decode_written(self, path: TracePath) -> WrittenEvents | None: ...


@cache
def _native_decoder() -> _NativeDecoder | None:
    try:
        native: _NativeDecoder = importlib.import_module("tracekit.read.decode.native")
    except ImportError as error:
        if error.name != "tracekit.read.decode.native._scanner":
            raise
        return None
    return native
