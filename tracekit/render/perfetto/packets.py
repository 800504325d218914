"""Slices of one track -> packets: the place where an encoder is chosen."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from functools import cache

from tracekit.native_choice import use_native
from tracekit.render.perfetto import portable_packets
from tracekit.render.perfetto.extra_args import Details
from tracekit.render.perfetto.fields import Field
from tracekit.render.perfetto.portable_packets import Lane
from tracekit.render.trace.slices import Slices

__all__ = ["Encoder", "lanes_of"]

Encoder = Callable[[Slices, Sequence[Field], Details | None, int], list[Lane]]


def lanes_of(slices: Slices, fields: Sequence[Field], details: Details | None, sequence: int) -> list[Lane]:
    """The packets of n > 0 slices, a lane at a time: compiled code writes them where there was a compiler and
    $TRACEKIT_NATIVE is not 0. `sequence`: the id of the packet sequence."""
    compiled = _compiled()
    chosen = compiled if use_native("Perfetto encoder", is_built=compiled is not None) else None
    return (chosen or portable_packets.lanes_of)(slices, fields, details, sequence)


@cache
def _compiled() -> Encoder | None:
    try:
        found: Encoder = importlib.import_module("tracekit.render.perfetto.compiled_packets").lanes_of
    except ImportError as error:
        if error.name != "tracekit.render.perfetto._encoder":
            raise
        return None
    return found
