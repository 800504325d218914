"""Slices of one track -> packets of each lane that they need, by numpy.

Comes in: `Slices` and their fields. Goes out: `Lane`s; opens and closes of a lane are in the order in which
`nesting.boundary_order` has them. Slices that say the same fields are encoded together, as messages of one size, and
their details as further records behind these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TracePacket, TrackEvent

from tracekit.model.events import ABSENT, Bool, Int32, Int64
from tracekit.render.perfetto.extra_args import Details
from tracekit.render.perfetto.fields import Field
from tracekit.render.perfetto.wire import (
    Bytes,
    Records,
    Shape,
    begun_message,
    fixed,
    fixed64,
    message,
    records,
    varint,
    width_of,
    windows,
    woven,
)
from tracekit.render.trace.nesting import lane_boundaries
from tracekit.render.trace.presence_groups import Forms
from tracekit.render.trace.slices import Rows, Slices, Unsigned

__all__ = ["Lane", "event", "event_packets", "lanes_of"]

_BLOCK = 1 << 15  # packets encoded at once: what a block needs fits into a CPU's cache


@dataclass(frozen=True, kw_only=True, eq=False)
class Lane:
    """`start_ns`, `end_ns`: of all that is on it. `packets`: bytes, one piece behind the other."""

    start_ns: int
    end_ns: int
    packets: Iterable[bytes | memoryview]


def lanes_of(slices: Slices, fields: Sequence[Field], details: Details | None, sequence: int) -> list[Lane]:
    """Of n > 0 slices; `sequence`: the id of the packet sequence."""
    rows = slices.rows_of(np.arange(len(slices), dtype=np.int32))
    forms = Forms([_known(field, rows) for field in fields], len(slices))

    def packets(boundaries: Int32) -> Iterator[memoryview]:
        for block in np.split(boundaries, range(_BLOCK, len(boundaries), _BLOCK)):
            yield _encoded(slices, fields, details, forms, block, sequence).data

    end_ns = slices.start_ns + slices.duration_ns
    found = []
    for boundaries in lane_boundaries(slices.start_ns, slices.duration_ns):
        opened = boundaries[boundaries >= 0]
        times = {"start_ns": int(slices.start_ns[opened].min()), "end_ns": int(end_ns[opened].max())}
        found.append(Lane(**times, packets=packets(boundaries)))
    return found


def event(kind: int) -> Shape:
    """The type of a track event, which may say more behind it."""
    return fixed(TrackEvent.TYPE_FIELD_NUMBER, kind)


def event_packets(sequence: int, said: Shape, columns: Sequence[Unsigned]) -> Records:
    """Packets of one track event each, which is `said`; the first of `columns`, uint64 [n] each, is their time."""
    packet = _about(sequence, columns[0]) + message(TracePacket.TRACK_EVENT_FIELD_NUMBER, said)
    return records(message(Trace.PACKET_FIELD_NUMBER, packet), columns, len(columns[0]))


def _begun_packets(sequence: int, said: Shape, columns: Sequence[Unsigned], more: Unsigned) -> Records:
    """`event_packets` whose events have `more` bytes, uint64 [n], behind the record."""
    inner, inner_length = begun_message(TracePacket.TRACK_EVENT_FIELD_NUMBER, said, more)
    packet, length = begun_message(Trace.PACKET_FIELD_NUMBER, _about(sequence, columns[0]) + inner, more)
    return records(packet, [length, columns[0], inner_length, *columns[1:]], len(columns[0]))


def _about(sequence: int, time_ns: Unsigned) -> Shape:
    """What a packet says besides its event; the hole is for its time."""
    time = varint(TracePacket.TIMESTAMP_FIELD_NUMBER, width_of(time_ns))
    return time + fixed(TracePacket.TRUSTED_PACKET_SEQUENCE_ID_FIELD_NUMBER, sequence)


def _encoded(
    slices: Slices, fields: Sequence[Field], details: Details | None, forms: Forms, boundaries: Int32, sequence: int
) -> Bytes:
    """Opens and closes of slices, in the order of `boundaries`, int32 [b]: a slice to open, ~slice to close. Of each
    there is a place for its packet, and one for its details."""
    opened, closed = np.flatnonzero(boundaries >= 0), np.flatnonzero(boundaries < 0)
    ending = ~boundaries[closed]
    ends_ns = (slices.start_ns[ending] + slices.duration_ns[ending]).view(np.uint64)
    parts = [(2 * closed, event_packets(sequence, event(TrackEvent.TYPE_SLICE_END), [ends_ns]))]
    for positions, places in forms.of(boundaries[opened]):
        begun = boundaries[opened[positions]]
        rows = slices.rows_of(begun)
        values = [_numbers(fields[place], rows) for place in places]
        shapes = [_shape(fields[place], width_of(column)) for place, column in zip(places, values, strict=True)]
        said = sum(shapes, event(TrackEvent.TYPE_SLICE_BEGIN))
        columns = [slices.start_ns[begun].view(np.uint64), *values]
        at = 2 * opened[positions]
        if details is None:
            parts.append((at, event_packets(sequence, said, columns)))
        else:
            more = details.sizes_of(rows)
            parts.append((at, _begun_packets(sequence, said, columns, more.view(np.uint64))))
            parts += [(at[some] + 1, of_some) for some, of_some in _by_size(details, rows)]
    return woven(parts, 2 * len(boundaries))


def _by_size(details: Details, rows: Rows) -> Iterator[tuple[Int64, Records]]:
    """The details of rows, integers [n], as records of one size each, with the positions of those that have them."""
    sizes, starts = details.sizes_of(rows), details.starts_of(rows)
    order = np.argsort(sizes, kind="stable")
    for positions in np.split(order, np.flatnonzero(np.diff(sizes[order])) + 1):
        if size := int(sizes[positions[0]]):
            yield positions, windows(details.content, size)[starts[positions]]


def _known(field: Field, rows: Rows) -> Bool:
    """bool [n]: which of the rows have it."""
    has = np.ones(len(rows), dtype=np.bool_) if field.present is None else field.present[rows]
    if field.numbers is not None:
        has &= field.values[rows] != ABSENT
    if field.is_fixed64:
        has &= field.values[rows] != 0
    return has


def _numbers(field: Field, rows: Rows) -> Unsigned:
    """uint64 [n]: what the rows, which all have it, say."""
    values = field.values[rows]
    return values.view(np.uint64) if field.numbers is None else field.numbers[values]


def _shape(field: Field, width: int) -> Shape:
    number = fixed64(field.number) if field.is_fixed64 else varint(field.number, width)
    if not field.annotation:
        return number
    return message(TrackEvent.DEBUG_ANNOTATIONS_FIELD_NUMBER, Shape(content=field.annotation), number)
