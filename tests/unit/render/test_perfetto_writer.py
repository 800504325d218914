from __future__ import annotations

import io

import numpy as np
import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TracePacket, TrackEvent

from tracekit.model.events import ABSENT
from tracekit.render.merged.slices import Argument, Flows, Slices
from tracekit.render.perfetto import RankTraceWriter

START = 1_752_000_000_000_000_000


def int64(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def int32(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int32)


def slices(
    start_ns: np.ndarray,
    duration_ns: np.ndarray,
    name: np.ndarray,
    strings: list[str],
    *,
    category: np.ndarray | None = None,
    arguments: tuple[Argument, ...] = (),
    flows: tuple[Flows, ...] = (),
) -> Slices:
    if category is None:
        category = np.full(len(name), ABSENT, dtype=np.int32)
    times = {"start_ns": start_ns, "duration_ns": duration_ns}
    return Slices(**times, name=name, category=category, strings=strings, arguments=arguments, flows=flows)


def events_of(stream: io.BytesIO) -> list[TrackEvent]:
    return [p.track_event for p in Trace.FromString(stream.getvalue()).packet if p.HasField("track_event")]


def test_packets_of_a_small_trace() -> None:
    """GIVEN a parent with a child WHEN written THEN opens and closes are in order, names interned once."""
    stream = io.BytesIO()
    writer = RankTraceWriter(stream, rank=3)
    thread = writer.add_track("main", parent=writer.add_process("rank 3", pid=4, order=3))
    for begin in (START, START + 9):
        writer.write_slices(
            thread, slices(begin + int64(0, 1), int64(9, 2), int32(1, 0), ["mm", "step"], category=int32(0, -1))
        )

    packets = Trace.FromString(stream.getvalue()).packet
    assert {packet.trusted_packet_sequence_id for packet in packets} == {5}
    assert packets[0].sequence_flags == TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
    assert [(name.iid, name.name) for p in packets for name in p.interned_data.event_names] == [(1, "mm"), (2, "step")]
    events = [(p.timestamp - START, p.track_event) for p in packets if p.HasField("track_event")]
    begin, end = TrackEvent.TYPE_SLICE_BEGIN, TrackEvent.TYPE_SLICE_END
    assert [(time, event.type, event.name_iid, list(event.category_iids)) for time, event in events] == [
        (after + time, *what)
        for after in (0, 9)
        for time, *what in ((0, begin, 2, [1]), (1, begin, 1, []), (3, end, 0, []), (9, end, 0, []))
    ]
    said = [p.trace_packet_defaults.track_event_defaults for p in packets if p.HasField("trace_packet_defaults")]
    assert {defaults.track_uuid for defaults in said} == {thread.uuid}


def test_calls_that_overlap_in_time_write_on_different_lanes() -> None:
    """GIVEN slices of one track in several calls THEN none ends another, and lanes that are free again are used."""
    stream = io.BytesIO()
    writer = RankTraceWriter(stream, rank=0)
    track = writer.add_track("t")
    for start_ns, duration_ns in ((0, 10), (5, 10), (10, 5), (20, 1)):
        writer.write_slices(track, slices(START + int64(start_ns), int64(duration_ns), int32(0), ["a"]))
    packets = Trace.FromString(stream.getvalue()).packet
    said = [p.trace_packet_defaults.track_event_defaults for p in packets if p.HasField("trace_packet_defaults")]
    other = next(p.track_descriptor.uuid for p in packets if p.track_descriptor.name == "t · overlap 2")
    assert [defaults.track_uuid for defaults in said] == [track.uuid, other, track.uuid, track.uuid]


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
    assert writer.write_slices(track, slices(int64(), int64(), int32(), [])) == 0
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
    with pytest.raises(ValueError, match=message):
        slices(start_ns, duration_ns, int32(0), ["a"])


def test_each_slice_says_its_own_arguments() -> None:
    """GIVEN arguments that only some slices have THEN a slice carries its own, with names and texts interned once."""
    stream = io.BytesIO()
    writer = RankTraceWriter(stream, rank=0)
    size = Argument(name="size_bytes", values=int64(-5, 7, 1 << 40), present=np.array([True, False, True]))
    dtype = Argument(name="dtype", values=int32(1, ABSENT, 1), is_text=True)
    writer.write_slices(
        writer.add_track("t"),
        slices(START + int64(0, 1, 2), int64(1, 1, 1), int32(0, 0, 0), ["a", "float32"], arguments=(size, dtype)),
    )
    packets = Trace.FromString(stream.getvalue()).packet
    interned = [p.interned_data for p in packets if p.HasField("interned_data")]
    names = {n.iid: n.name for data in interned for n in data.debug_annotation_names}
    texts = {t.iid: t.str.decode() for data in interned for t in data.debug_annotation_string_values}
    said = [
        {
            names[a.name_iid]: texts[a.string_value_iid] if a.HasField("string_value_iid") else a.int_value
            for a in event.debug_annotations
        }
        for event in events_of(stream)
        if event.type == TrackEvent.TYPE_SLICE_BEGIN
    ]
    assert said == [{"size_bytes": -5, "dtype": "float32"}, {}, {"size_bytes": 1 << 40, "dtype": "float32"}]


@pytest.mark.parametrize("extra", [1, 20])
def test_more_arguments_than_bits_of_a_small_number_change_nothing(extra: int) -> None:
    """GIVEN slices of which each has one argument of its own THEN that is the one it says."""
    stream = io.BytesIO()
    writer = RankTraceWriter(stream, rank=0)
    rows = np.arange(extra)
    arguments = tuple(Argument(name=f"a{k}", values=rows.astype(np.int64), present=rows == k) for k in range(extra))
    writer.write_slices(
        writer.add_track("t"),
        slices(START + rows, rows * 0, np.zeros(extra, dtype=np.int32), ["a"], arguments=arguments),
    )
    opened = [event for event in events_of(stream) if event.type == TrackEvent.TYPE_SLICE_BEGIN]
    assert [[a.int_value for a in event.debug_annotations] for event in opened] == [[k] for k in range(extra)]


def test_slices_say_to_which_arrows_they_belong() -> None:
    stream = io.BytesIO()
    writer = RankTraceWriter(stream, rank=0)
    flows = Flows(ids=np.array([8, 0, 8], dtype=np.uint64), role=np.array([0, 0, 2], dtype=np.uint8))
    writer.write_slices(
        writer.add_track("t"), slices(START + int64(0, 2, 5), int64(1, 1, 2), int32(0, 0, 0), ["a"], flows=(flows,))
    )
    opened = [event for event in events_of(stream) if event.type == TrackEvent.TYPE_SLICE_BEGIN]
    assert [list(event.flow_ids) for event in opened] == [[8], [], [8]]


def test_a_counter_says_its_values_and_its_unit() -> None:
    stream = io.BytesIO()
    writer = RankTraceWriter(stream, rank=0)
    counter = writer.add_counter("busbw dp", unit="GB/s")
    writer.write_counter(counter, START + int64(0, 9), np.array([1.5, 0.0]))
    packets = Trace.FromString(stream.getvalue()).packet
    assert [p.track_descriptor.counter.unit_name for p in packets if p.track_descriptor.HasField("counter")] == ["GB/s"]
    said = [(p.timestamp - START, p.track_event.double_counter_value) for p in packets if p.HasField("track_event")]
    assert said == [(0, 1.5), (9, 0.0)]


def test_the_idle_process_s_pid_is_no_rank_s() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        RankTraceWriter(io.BytesIO(), rank=0).add_process("rank 0", pid=0)
