"""Slices of one track -> packets of each lane that they need, by `encoder.cpp`: the same lanes as `portable_packets`
gives, and messages that say the same in fewer bytes. Importing this fails where the extension was not built.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TracePacket, TrackEvent

from tracekit.render.merged.nesting import MAX_DEPTH, opening_order
from tracekit.render.merged.slices import Slices
from tracekit.render.perfetto._encoder import INTERFACE, encode
from tracekit.render.perfetto.fields import Field
from tracekit.render.perfetto.portable_packets import Lane, event
from tracekit.render.perfetto.wire import FIXED64, LENGTH_DELIMITED, VARINT, fixed, tag

__all__ = ["lanes_of"]

if INTERFACE != 1:  # an installation whose extension was built from other sources
    raise ImportError("the extension does not fit: install tracekit again", name="tracekit.render.perfetto._encoder")


def lanes_of(slices: Slices, fields: Sequence[Field], sequence: int) -> list[Lane]:
    """Of n > 0 slices; `sequence`: the id of the packet sequence."""
    frame = (
        tag(Trace.PACKET_FIELD_NUMBER, LENGTH_DELIMITED),
        tag(TracePacket.TIMESTAMP_FIELD_NUMBER, VARINT),
        fixed(TracePacket.TRUSTED_PACKET_SEQUENCE_ID_FIELD_NUMBER, sequence).content
        + tag(TracePacket.TRACK_EVENT_FIELD_NUMBER, LENGTH_DELIMITED),
        event(TrackEvent.TYPE_SLICE_BEGIN).content,
        event(TrackEvent.TYPE_SLICE_END).content,
    )
    around = tag(TrackEvent.DEBUG_ANNOTATIONS_FIELD_NUMBER, LENGTH_DELIMITED)
    told = [
        (
            around if field.annotation else b"",
            field.annotation + tag(field.number, FIXED64 if field.is_fixed64 else VARINT),
            np.require(field.values, requirements="C"),
            field.numbers,
            None if field.present is None else np.require(field.present, requirements="C"),
            field.place,
            field.is_fixed64,
        )
        for field in fields
    ]
    found = encode(
        order=opening_order(slices.start_ns, slices.duration_ns),
        start_ns=np.require(slices.start_ns, requirements="C"),
        duration_ns=np.require(slices.duration_ns, requirements="C"),
        rows=slices.rows,
        fields=told,
        frame=frame,
        max_depth=MAX_DEPTH,
    )
    return [
        Lane(start_ns=start_ns, end_ns=end_ns, packets=(memoryview(packets),)) for start_ns, end_ns, packets in found
    ]
