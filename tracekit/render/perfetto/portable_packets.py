"""Encode the slices of one track as packets without compiled code: a loop over the `perfetto` package's messages.

The packets equal those of `compiled_packets` message by message. Only the order of fields in the bytes differs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tracekit.model.events import Int32
from tracekit.render.perfetto.extra_args import EncodedTrackRow, ExtraArgs
from tracekit.render.perfetto.fields import Field
from tracekit.render.perfetto.messages import TYPE_SLICE_BEGIN, TYPE_SLICE_END, Trace
from tracekit.render.slices import Rows, Slices, track_row_boundaries

_BLOCK_PACKETS = 1 << 13  # packets that are in memory as messages at a time


def encode_track_rows(
    slices: Slices, fields: Sequence[Field], extra_args: ExtraArgs | None, sequence: int
) -> list[EncodedTrackRow]:
    """Return the packets of n > 0 slices, by track row. `sequence`: id of the packet sequence."""
    track_rows = []
    for boundaries in track_row_boundaries(slices.start_ns, slices.duration_ns):
        opened = boundaries[boundaries >= 0]
        track_rows.append(
            EncodedTrackRow(
                start_ns=int(slices.start_ns[opened].min()),
                end_ns=int((slices.start_ns[opened] + slices.duration_ns[opened]).max()),
                slices=len(opened),
                packets=_packets(slices, fields, extra_args, boundaries, sequence),
            )
        )
    return track_rows


def _packets(
    slices: Slices, fields: Sequence[Field], extra_args: ExtraArgs | None, boundaries: Int32, sequence: int
) -> Iterator[bytes]:
    """Yield blocks of packets in the order of `boundaries`, int32 [b]: slice to open, or ~slice to close."""
    for block in np.split(boundaries, range(_BLOCK_PACKETS, len(boundaries), _BLOCK_PACKETS)):
        opens = block >= 0
        index = np.where(opens, block, ~block)
        time_ns = slices.start_ns[index] + np.where(opens, 0, slices.duration_ns[index])
        rows = slices.rows_of(block[opens])
        numbers = zip(*(_numbers(field, rows) for field in fields), strict=True)
        extra = iter([b""] * len(rows) if extra_args is None else extra_args.of_rows(rows))
        trace = Trace()
        for is_open, at_ns in zip(opens.tolist(), time_ns.tolist(), strict=True):
            event = trace.packet.add(timestamp=at_ns, trusted_packet_sequence_id=sequence).track_event
            if is_open:
                event.type = TYPE_SLICE_BEGIN
                _fill(event, fields, next(numbers))
                event.MergeFromString(next(extra))
            else:
                event.type = TYPE_SLICE_END
        yield trace.SerializeToString()


def _numbers(field: Field, rows: Rows) -> list[int | None]:
    """Return the field's number in each of the rows, integers [n]; None where the row has none."""
    values = field.values[rows]
    if field.numbers is not None:
        values = field.numbers[values]
    known = np.ones(len(rows), dtype=np.bool_) if field.present is None else field.present[rows]
    if field.zero_is_absent:
        known = known & (values != 0)
    return [value if is_known else None for value, is_known in zip(values.tolist(), known.tolist(), strict=True)]


def _fill(event: Any, fields: Sequence[Field], numbers: Sequence[int | None]) -> None:
    for field, number in zip(fields, numbers, strict=True):
        if number is None:
            continue
        if field.argument is not None:
            event.debug_annotations.add(name_iid=field.argument, **{field.name: number})
        elif field.is_repeated:
            getattr(event, field.name).append(number)
        else:
            setattr(event, field.name, number)
