"""Packets of one rank's tracks, read with the `perfetto` package's messages."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import (
    DebugAnnotation,
    Trace,
    TracePacket,
    TrackEvent,
    TrackEventDefaults,
)

from tests.components import require_module
from tracekit.model.events import ABSENT
from tracekit.read.decode.extra_args import select_extra_args
from tracekit.render.perfetto import RankTraceWriter
from tracekit.render.trace.slices import Argument, Flows, Slices

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
    **other: Any,
) -> Slices:
    if category is None:
        category = np.full(len(name), ABSENT, dtype=np.int32)
    times = {"start_ns": start_ns, "duration_ns": duration_ns}
    return Slices(**times, name=name, category=category, strings=strings, **other)


def events_of(stream: io.BytesIO) -> list[TrackEvent]:
    return [p.track_event for p in Trace.FromString(stream.getvalue()).packet if p.HasField("track_event")]


def event_defaults(packets: Sequence[TracePacket]) -> list[TrackEventDefaults]:
    return [p.trace_packet_defaults.track_event_defaults for p in packets if p.HasField("trace_packet_defaults")]


def arguments_of(stream: io.BytesIO) -> list[dict[str, object]]:
    """Arguments of each slice, in the order of the file."""
    packets = Trace.FromString(stream.getvalue()).packet
    interned = [p.interned_data for p in packets if p.HasField("interned_data")]
    names = {n.iid: n.name for data in interned for n in data.debug_annotation_names}
    texts = {t.iid: t.str.decode() for data in interned for t in data.debug_annotation_string_values}

    def value(annotation: DebugAnnotation) -> object:
        kind = annotation.WhichOneof("value")
        return texts[annotation.string_value_iid] if kind == "string_value_iid" else getattr(annotation, kind)

    return [
        {names[annotation.name_iid]: value(annotation) for annotation in event.debug_annotations}
        for event in events_of(stream)
        if event.type == TrackEvent.TYPE_SLICE_BEGIN
    ]


def test_packets_of_a_small_trace() -> None:
    """GIVEN a parent with a child WHEN written THEN opens and closes are in order, names interned once."""
    stream = io.BytesIO()
    writer = RankTraceWriter(stream, rank=3)
    thread = writer.add_track("main", parent=writer.add_rank_page("rank 3", order=3))
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
    assert {defaults.track_uuid for defaults in event_defaults(packets)} == {thread.uuid}


def test_calls_that_overlap_in_time_write_on_different_lanes() -> None:
    """GIVEN slices of one track in several calls THEN calls that overlap use two lanes, and free lanes are reused."""
    stream = io.BytesIO()
    writer = RankTraceWriter(stream, rank=0)
    track = writer.add_track("t")
    for start_ns, duration_ns in ((0, 10), (5, 10), (10, 5), (20, 1)):
        writer.write_slices(track, slices(START + int64(start_ns), int64(duration_ns), int32(0), ["a"]))
    packets = Trace.FromString(stream.getvalue()).packet
    other = next(p.track_descriptor.uuid for p in packets if p.track_descriptor.name == "t · overlap 2")
    assert [defaults.track_uuid for defaults in event_defaults(packets)] == [track.uuid, other, track.uuid, track.uuid]


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


def test_extra_arguments_must_have_as_many_rows_as_names() -> None:
    with pytest.raises(ValueError, match="different lengths"):
        slices(int64(1), int64(1), int32(0), ["a"], extra_args=int32(0, 0))


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


def test_each_slice_has_its_arguments() -> None:
    """GIVEN arguments that only some slices have THEN these slices have them, and names and texts are interned."""
    stream = io.BytesIO()
    writer = RankTraceWriter(stream, rank=0)
    size = Argument(name="size_bytes", values=int64(-5, 7, 1 << 40), present=np.array([True, False, True]))
    dtype = Argument(name="dtype", values=int32(1, ABSENT, 1), is_text=True)
    writer.write_slices(
        writer.add_track("t"),
        slices(START + int64(0, 1, 2), int64(1, 1, 1), int32(0, 0, 0), ["a", "float32"], arguments=(size, dtype)),
    )
    assert arguments_of(stream) == [
        {"size_bytes": -5, "dtype": "float32"},
        {},
        {"size_bytes": 1 << 40, "dtype": "float32"},
    ]


@pytest.mark.parametrize("decoder", ["native", "portable"])
def test_extra_arguments_follow_the_others(decoder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """GIVEN JSON objects WHEN written THEN numbers, truth values and texts keep their type, all else is JSON text."""
    if decoder == "native":
        require_module("tracekit.render.perfetto._encoder")
    monkeypatch.setenv("TRACEKIT_NATIVE", str(int(decoder == "native")))
    stream = io.BytesIO()
    writer = RankTraceWriter(stream, rank=0)
    kernel = '{"grid": [4, 1,1],"registers per thread": 32,"est. achieved occupancy %" : 0.5,"queued":-0 , "x":1e2}'
    odd = '{ "": "", "\\u4e2d\\"": "\\ud83d\\ude00\\n", "o": {"a": [], "b": {}}, "t": true, "f": false, "n": null }'
    large = (
        f'{{"in": {2**63 - 1}, "least": {-(2**63)}, "beyond": {2**63}, "below": {-(2**63) - 1}, "long": {"9" * 5000}, '
        '"huge": -1e999, "x\\u0000y": "a\\u0000"}'
    )
    objects = [select_extra_args(text.encode()) for text in (kernel, odd, large)]
    size = Argument(name="size_bytes", values=int64(1, 2, 3, 4, 5))
    writer.write_slices(
        writer.add_track("t"),
        slices(
            START + np.arange(5), int64(0, 0, 0, 0, 0), int32(0, 0, 0, 0, 0), ["a", *objects],
            arguments=(size,), extra_args=int32(1, ABSENT, 2, 3, ABSENT),
        ),
    )  # fmt: skip
    expected = [
        {"size_bytes": 1, "grid": "[4, 1,1]", "registers per thread": 32, "est. achieved occupancy %": 0.5, "queued": 0}
        | {"x": 100.0},
        {"size_bytes": 2},
        {"size_bytes": 3, "": "", '中"': "😀\n", "o": '{"a": [], "b": {}}', "t": True, "f": False, "n": "null"},
        {"size_bytes": 4, "in": 2**63 - 1, "least": -(2**63), "beyond": str(2**63), "below": str(-(2**63) - 1)}
        | {"long": "9" * 5000, "huge": "-1e999", "x?y": "a?"},
        {"size_bytes": 5},
    ]
    actual = arguments_of(stream)
    assert actual == expected
    assert [[*map(type, each.values())] for each in actual] == [[*map(type, each.values())] for each in expected]


def test_texts_of_extra_arguments_are_interned_once_for_all_tracks() -> None:
    """GIVEN two JSON objects, on three tracks with different tables of strings THEN keys and texts are written once."""
    stream = io.BytesIO()
    writer = RankTraceWriter(stream, rank=0)
    texts = ['{"a": "x"}', '{"b": 1,\n"a": "x"}']
    for strings in (texts, texts[::-1], ["", *texts]):
        ids = np.arange(len(strings), dtype=np.int32) if strings[0] else int32(ABSENT, 1, 2)
        writer.write_slices(
            writer.add_track("t"),
            slices(START + 0 * ids.astype(np.int64), 0 * ids.astype(np.int64), ids, strings, extra_args=ids),
        )
    one, both = {"a": "x"}, {"b": 1, "a": "x"}
    assert arguments_of(stream) == [one, both, both, one, {}, one, both]
    interned = [p.interned_data for p in Trace.FromString(stream.getvalue()).packet if p.HasField("interned_data")]
    assert [name.name for data in interned for name in data.debug_annotation_names] == ["a", "b"]
    assert [text.str for data in interned for text in data.debug_annotation_string_values] == [b"x"]


def test_extra_arguments_may_be_nested_deeper_than_python_recurses() -> None:
    stream = io.BytesIO()
    writer = RankTraceWriter(stream, rank=0)
    nested = "[" * 5000 + "]" * 5000
    text = f'{{"deep": {nested},\n"flat": 1}}'
    writer.write_slices(
        writer.add_track("t"), slices(START + int64(0), int64(1), int32(0), ["a", text], extra_args=int32(1))
    )
    assert arguments_of(stream) == [{"deep": nested, "flat": 1}]


def test_extra_arguments_that_no_slice_of_the_track_has_are_not_written() -> None:
    """GIVEN a table of two rows, of which a track shows one THEN the other's extra arguments are not in the trace."""
    stream = io.BytesIO()
    writer = RankTraceWriter(stream, rank=0)
    shown = slices(
        START + int64(0),
        int64(1),
        int32(0, 0),
        ["a", '{"shown": 1}', '{"hidden": 2}'],
        extra_args=int32(2, 1),
        rows=int32(1),
    )
    writer.write_slices(writer.add_track("t"), shown)
    assert arguments_of(stream) == [{"shown": 1}]
    assert b"hidden" not in stream.getvalue()


@pytest.mark.parametrize("count", [1, 20])
def test_each_slice_may_have_another_argument(count: int) -> None:
    """GIVEN slices of which each has one argument that no other has THEN each has that one alone."""
    stream = io.BytesIO()
    writer = RankTraceWriter(stream, rank=0)
    rows = np.arange(count)
    arguments = tuple(Argument(name=f"a{k}", values=rows.astype(np.int64), present=rows == k) for k in range(count))
    writer.write_slices(
        writer.add_track("t"),
        slices(START + rows, rows * 0, np.zeros(count, dtype=np.int32), ["a"], arguments=arguments),
    )
    opened = [event for event in events_of(stream) if event.type == TrackEvent.TYPE_SLICE_BEGIN]
    assert [[a.int_value for a in event.debug_annotations] for event in opened] == [[k] for k in range(count)]


def test_slices_have_the_ids_of_their_arrows() -> None:
    stream = io.BytesIO()
    writer = RankTraceWriter(stream, rank=0)
    flows = Flows(ids=np.array([8, 0, 8], dtype=np.uint64), role=np.array([0, 0, 2], dtype=np.uint8))
    writer.write_slices(
        writer.add_track("t"), slices(START + int64(0, 2, 5), int64(1, 1, 2), int32(0, 0, 0), ["a"], flows=(flows,))
    )
    opened = [event for event in events_of(stream) if event.type == TrackEvent.TYPE_SLICE_BEGIN]
    assert [list(event.flow_ids) for event in opened] == [[8], [], [8]]


@pytest.mark.parametrize("rank", [0, 300])
@pytest.mark.parametrize("start_ns", [0, START, 2**63 - 10])
def test_a_counter_has_values_and_a_unit(start_ns: int, rank: int) -> None:
    """GIVEN any time in int64, and packet sequences whose ids take one byte or two THEN values come back."""
    stream = io.BytesIO()
    writer = RankTraceWriter(stream, rank)
    counter = writer.add_counter("busbw dp", unit="GB/s")
    writer.write_counter(counter, start_ns + int64(0, 9), np.array([1.5, 0.0]))
    packets = Trace.FromString(stream.getvalue()).packet
    assert [p.track_descriptor.counter.unit_name for p in packets if p.track_descriptor.HasField("counter")] == ["GB/s"]
    events = [p for p in packets if p.HasField("track_event")]
    assert {(p.trusted_packet_sequence_id, p.track_event.type) for p in events} == {(rank + 2, TrackEvent.TYPE_COUNTER)}
    assert [(p.timestamp - start_ns, p.track_event.double_counter_value) for p in events] == [(0, 1.5), (9, 0.0)]
