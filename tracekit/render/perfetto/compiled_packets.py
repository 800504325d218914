"""Encode the slices of one track as packets, by `encoder.cpp`.

Importing this module fails where the extension was not built.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.limits import limits
from tracekit.model.events import Int32, Int64
from tracekit.render.perfetto._encoder import INTERFACE, Packets, lanes
from tracekit.render.perfetto.extra_args import EncodedTrackRow, ExtraArgs
from tracekit.render.perfetto.fields import Field
from tracekit.render.perfetto.messages import (
    TYPE_SLICE_BEGIN,
    TYPE_SLICE_END,
    DebugAnnotation,
    Trace,
    TracePacket,
    TrackEvent,
)
from tracekit.render.slices import MAX_DEPTH, Slices, opening_order, split_track_rows

if TYPE_CHECKING:
    from tracekit.render.perfetto._encoder import ExtraArgColumns, FieldColumns


if INTERFACE != 4:  # the extension was built from other sources
    raise ImportError("the extension does not fit: install tracekit again", name="tracekit.render.perfetto._encoder")

_VARINT, _FIXED64, _LENGTH_DELIMITED = 0, 1, 2  # wire types: https://protobuf.dev/programming-guides/encoding/


def encode_track_rows(
    slices: Slices, fields: Sequence[Field], extra_args: ExtraArgs | None, sequence: int
) -> list[EncodedTrackRow]:
    """Return the packets of n > 0 slices, by track row. `sequence`: id of the packet sequence."""
    template = (
        _tag(Trace, "packet", _LENGTH_DELIMITED),
        _tag(TracePacket, "timestamp", _VARINT),
        TracePacket(trusted_packet_sequence_id=sequence).SerializeToString()
        + _tag(TracePacket, "track_event", _LENGTH_DELIMITED),
        TrackEvent(type=TYPE_SLICE_BEGIN).SerializeToString(),
        TrackEvent(type=TYPE_SLICE_END).SerializeToString(),
    )
    columns = [_field_columns(field) for field in fields]
    extra = None if extra_args is None else _extra_arg_columns(extra_args, len(slices.strings))
    start_ns, duration_ns = (np.require(times, requirements="C") for times in (slices.start_ns, slices.duration_ns))
    encoded = []
    for order in _orders(start_ns, duration_ns):
        packets = Packets(
            order=order,
            start_ns=start_ns,
            duration_ns=duration_ns,
            rows=slices.rows,
            fields=columns,
            extra_args=extra,
            template=template,
        )
        end_ns = int((start_ns[order] + duration_ns[order]).max())
        encoded.append(
            EncodedTrackRow(start_ns=int(start_ns[order[0]]), end_ns=end_ns, slices=len(order), packets=packets)
        )
    return encoded


def _orders(start_ns: Int64, duration_ns: Int64) -> list[Int32]:
    """Return the slices of each track row in the order in which they open."""
    order = opening_order(start_ns, duration_ns)
    found = lanes(order, start_ns, duration_ns, max_depth=MAX_DEPTH, max_lanes=limits().lanes)
    track_row = np.frombuffer(found, dtype=np.int32)
    return split_track_rows(order, track_row) if track_row.any() else [order]


def _field_columns(field: Field) -> FieldColumns:
    """Return what `Packets` takes for a field."""
    message, annotation, name = TrackEvent, b"", b""
    if field.argument is not None:
        message, annotation = DebugAnnotation, _tag(TrackEvent, "debug_annotations", _LENGTH_DELIMITED)
        name = DebugAnnotation(name_iid=field.argument).SerializeToString()
    return (
        annotation,
        name + _tag(message, field.name, _FIXED64 if field.is_fixed64 else _VARINT),
        np.require(field.values, requirements="C"),
        field.numbers,
        None if field.present is None else np.require(field.present, requirements="C"),
        field.is_fixed64,
    )


def _extra_arg_columns(extra_args: ExtraArgs, strings: int) -> ExtraArgColumns:
    """Return what `Packets` takes for extra arguments: where in one text each string id has its bytes."""
    encoded = extra_args.encoded
    sizes = np.zeros(strings, dtype=np.int64)
    sizes[list(encoded)] = [len(each) for each in encoded.values()]
    ids = np.require(extra_args.ids, requirements="C")
    return ids, np.cumsum(sizes) - sizes, sizes, b"".join(encoded.values())


@cache
def _tag(message: Any, field: str, wire_type: int) -> bytes:
    """Return the bytes that come before the value of a field."""
    tag = message.DESCRIPTOR.fields_by_name[field].number << 3 | wire_type
    return bytes([tag]) if tag < 0x80 else bytes([tag & 0x7F | 0x80, tag >> 7])  # numbers below 2^11: two bytes suffice
