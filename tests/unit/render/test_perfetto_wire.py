from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TracePacket

from tracekit.render.perfetto.wire import assemble, fixed_field, message_field, uint_field

UINT64 = st.one_of(st.integers(0, 2**64 - 1), st.integers(0, 63).map(lambda bits: 1 << bits), st.integers(0, 300))
ROWS = st.lists(st.tuples(UINT64, UINT64, st.booleans(), st.booleans()), min_size=1, max_size=30)


@given(ROWS)
def test_bytes_are_those_of_protobuf(rows: list[tuple[int, int, bool, bool]]) -> None:
    """GIVEN columns, some absent in some rows WHEN encoded at once THEN each row's bytes are protobuf's own."""
    expected = b""
    for time, iid, has_iid, has_flags in rows:
        packet = TracePacket(timestamp=time)
        if has_flags:
            packet.sequence_flags = 300
        packet.track_event.SetInParent()
        if has_iid:
            packet.track_event.name_iid = iid
        expected += Trace(packet=[packet]).SerializeToString()

    times, iids = (np.array([row[i] for row in rows], dtype=np.uint64) for i in (0, 1))
    has_iids, flags = (np.array([row[i] for row in rows]) for i in (2, 3))
    # Protobuf writes fields by number: 8 timestamp, 11 track_event (10 name_iid), 13 sequence_flags.
    event = message_field(11, uint_field(10, iids, has_iids))
    packets = message_field(1, [*uint_field(8, times), *event, *fixed_field(13, 300, flags)])
    assert assemble(packets, len(rows)).tobytes() == expected


def test_a_message_longer_than_127_bytes_has_a_longer_length() -> None:
    fields = [column for _ in range(50) for column in uint_field(8, np.array([7, 1 << 40], dtype=np.uint64))]
    trace = Trace.FromString(assemble(message_field(1, fields), 2).tobytes())
    assert [packet.timestamp for packet in trace.packet] == [7, 1 << 40]
