"""Slices of one track -> packets of each lane that they need, by `encoder.cpp`: the same lanes as `portable_packets`
gives, and messages that say the same in fewer bytes. Importing this fails where the extension was not built.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TracePacket, TrackEvent

from tracekit.model.events import Int32, Int64
from tracekit.render.perfetto._encoder import INTERFACE, Packets, lanes
from tracekit.render.perfetto.extra_args import Details
from tracekit.render.perfetto.fields import Field
from tracekit.render.perfetto.portable_packets import Lane, event
from tracekit.render.perfetto.wire import FIXED64, LENGTH_DELIMITED, VARINT, fixed, tag
from tracekit.render.trace.nesting import MAX_DEPTH, opening_order
from tracekit.render.trace.slices import Slices

__all__ = ["lanes_of"]

if INTERFACE != 2:  # an installation whose extension was built from other sources
    raise ImportError("the extension does not fit: install tracekit again", name="tracekit.render.perfetto._encoder")


def lanes_of(slices: Slices, fields: Sequence[Field], details: Details | None, sequence: int) -> list[Lane]:
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
            field.is_fixed64,
        )
        for field in fields
    ]
    further = None
    if details is not None:
        further = (np.require(details.ids, requirements="C"), details.starts, details.sizes, details.content)
    start_ns, duration_ns = (np.require(times, requirements="C") for times in (slices.start_ns, slices.duration_ns))
    found = []
    for order in _orders(start_ns, duration_ns):
        packets = Packets(
            order=order,
            start_ns=start_ns,
            duration_ns=duration_ns,
            rows=slices.rows,
            fields=told,
            details=further,
            frame=frame,
        )
        end_ns = int((start_ns[order] + duration_ns[order]).max())
        found.append(Lane(start_ns=int(start_ns[order[0]]), end_ns=end_ns, packets=packets))
    return found


def _orders(start_ns: Int64, duration_ns: Int64) -> list[Int32]:
    """Of each lane the slices, in the order in which they open."""
    order = opening_order(start_ns, duration_ns)
    lane = np.frombuffer(lanes(order, start_ns, duration_ns, max_depth=MAX_DEPTH), dtype=np.int32)
    last = int(lane.max())
    if last == 0:
        return [order]
    by_lane = np.argsort(lane, kind="stable")
    return np.split(order[by_lane], np.searchsorted(lane[by_lane], np.arange(1, last + 1)))
