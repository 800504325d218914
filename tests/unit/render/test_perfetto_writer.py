from __future__ import annotations

import io

import numpy as np
import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TracePacket, TrackEvent

from tracekit.render.perfetto import RankTraceWriter

START = 1_752_000_000_000_000_000


def int64(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def int32(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int32)


def test_packets_of_a_small_trace() -> None:
    """GIVEN a parent with a child WHEN written THEN opens and closes are in order, names interned once."""
    stream = io.BytesIO()
    writer = RankTraceWriter(stream, rank=3)
    thread = writer.add_thread(writer.add_process("rank 3", pid=4, order=3), "main", tid=4001)
    ids = int32(1, 0)
    for _ in range(2):
        writer.write_slices(
            thread, int64(START, START + 1), int64(9, 2), ids, ["mm", "step"], category_ids=int32(0, -1)
        )

    packets = Trace.FromString(stream.getvalue()).packet
    assert {packet.trusted_packet_sequence_id for packet in packets} == {5}
    assert packets[0].sequence_flags == TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
    assert [(name.iid, name.name) for p in packets for name in p.interned_data.event_names] == [(1, "mm"), (2, "step")]
    events = [(p.timestamp - START, p.track_event) for p in packets if p.HasField("track_event")]
    begin, end = TrackEvent.TYPE_SLICE_BEGIN, TrackEvent.TYPE_SLICE_END
    assert [(time, event.type, event.name_iid, list(event.category_iids)) for time, event in events] == 2 * [
        (0, begin, 2, [1]),
        (1, begin, 1, []),
        (3, end, 0, []),
        (9, end, 0, []),
    ]
    assert {event.track_uuid for _, event in events} == {thread.uuid}


def test_ranks_share_no_track_and_no_sequence() -> None:
    streams = io.BytesIO(), io.BytesIO()
    tracks = [RankTraceWriter(stream, rank).add_track("t") for rank, stream in enumerate(streams)]
    sequences = [Trace.FromString(stream.getvalue()).packet[0].trusted_packet_sequence_id for stream in streams]
    assert len({track.uuid for track in tracks}) == len(set(sequences)) == 2


def test_no_slices_write_nothing() -> None:
    stream = io.BytesIO()
    writer = RankTraceWriter(stream, rank=0)
    track = writer.add_track("empty")
    before = stream.getvalue()
    assert writer.write_slices(track, int64(), int64(), int32(), []) == 0
    assert stream.getvalue() == before


@pytest.mark.parametrize(
    ("start_ns", "duration_ns", "message"),
    [
        (int64(1), int64(-1), "negative"),
        (int64(-1), int64(1), "negative"),
        (int64(1, 2), int64(1, 1), "different lengths"),
        (int64(2**62), int64(2**62), "beyond"),
    ],
)
def test_impossible_slices_are_refused(start_ns: np.ndarray, duration_ns: np.ndarray, message: str) -> None:
    writer = RankTraceWriter(io.BytesIO(), rank=0)
    with pytest.raises(ValueError, match=message):
        writer.write_slices(writer.add_track("t"), start_ns, duration_ns, int32(0), ["a"])


def test_a_thread_needs_a_process_and_its_own_tid() -> None:
    writer = RankTraceWriter(io.BytesIO(), rank=0)
    process = writer.add_process("rank 0", pid=1)
    with pytest.raises(ValueError, match="cannot belong"):
        writer.add_thread(process, "main", tid=1)
    with pytest.raises(ValueError, match="cannot belong"):
        writer.add_thread(writer.add_track("t"), "main", tid=2)
    with pytest.raises(ValueError, match="at least 1"):
        writer.add_process("rank 0", pid=0)
