"""Choose the encoder that turns the slices of one track into packets."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import cache

from tracekit.native_choice import use_native
from tracekit.render.perfetto import portable_packets
from tracekit.render.perfetto.encoded_lane import EncodedLane, Encoder
from tracekit.render.perfetto.extra_args import ExtraArgs
from tracekit.render.perfetto.fields import Field
from tracekit.render.trace.slices import Slices

__all__ = ["chosen_encoder", "encode_lanes"]


def encode_lanes(
    slices: Slices, fields: Sequence[Field], extra_args: ExtraArgs | None, sequence: int
) -> list[EncodedLane]:
    """Return the packets of n > 0 slices, by lane. `sequence`: id of the packet sequence."""
    return chosen_encoder()(slices, fields, extra_args, sequence)


def chosen_encoder() -> Encoder:
    """Return the compiled encoder if it was built and $TRACEKIT_NATIVE allows it, else the portable one."""
    compiled = _compiled()
    chosen = compiled if use_native("Perfetto encoder", is_built=compiled is not None) else None
    return chosen or portable_packets.encode_lanes


@cache
def _compiled() -> Encoder | None:
    try:
        encoder: Encoder = importlib.import_module("tracekit.render.perfetto.compiled_packets").encode_lanes
    except ImportError as error:
        if error.name != "tracekit.render.perfetto._encoder":
            raise
        return None
    return encoder
