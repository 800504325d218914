"""Slices as they are written: both decoders read the same, and positions count all events of the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.builders import BASE_NS, TraceBuilder
from tests.unit.read.decode.decoders import native_decoder
from tracekit.model.events import ABSENT
from tracekit.read.decode import portable
from tracekit.read.decode.written_events import WrittenEvents, from_decoded

native = native_decoder()


def mixed() -> TraceBuilder:
    """Return slices among events of other phases: they are the events 1, 3, 4 and 6."""
    trace = TraceBuilder()
    place = {"pid": trace.pid, "tid": trace.main}
    trace.raw(ph="M", name="thread_name", **place, args={"name": "main"})
    trace.op("aten::mm", 1.25, 3, **{"Input Dims": [[2, 2]]})
    trace.raw(ph="s", id=1, name="ac2g", cat="ac2g", **place, ts=trace.ts(2))
    trace.kernel("void gemm()", 5, 2.5, launched_at=2)
    trace.raw(ph="i", name="mark", **place, ts=trace.ts(3), s="t")
    return trace.event("no arguments", "cpu_op", 9, 1)


def test_both_decoders_read_the_same(tmp_path: Path) -> None:
    path = mixed().write(tmp_path / "rank0.json")
    actual, expected = native.decode_written(path), from_decoded(portable.decode(path, extra_args=True))
    assert actual is not None
    assert described(actual) == described(expected)


def described(events: WrittenEvents) -> list[object]:
    """Return what the columns say, without the numbering of texts."""
    names = [[events.texts[number] for number in column.tolist()] for column in (events.name, events.category)]
    tracks = [events.tracks[number] for number in events.track.tolist()]
    arguments = [
        b"{}" if number == ABSENT else b"".join(events.argument_texts[number].split())
        for number in events.arguments.tolist()
    ]
    times = (events.start_ns, events.duration_ns, events.correlation, events.external_id)
    columns = [column.tolist() for column in (*times, events.position, events.sequence_number, events.forward_thread)]
    return [*names, tracks, arguments, *columns, dict(events.keys), events.has_other_phases]


def test_positions_count_all_events(tmp_path: Path) -> None:
    path = mixed().write(tmp_path / "rank0.json")
    for decoder in (native, portable):
        decoded = decoder.decode(path, extra_args=True)
        assert decoded.events.position.tolist() == [1, 3, 4, 6]
        assert len(decoder.decode(path).events.position) == 0
        assert {"distributedInfo", "baseTimeNanoseconds"} <= decoded.keys.keys()


def test_a_pair_of_begin_and_end_has_no_position(tmp_path: Path) -> None:
    trace = TraceBuilder().op("first", 0, 1)
    for phase, at in (("B", 2), ("E", 4)):
        trace.raw(ph=phase, name="pair", cat="cpu_op", pid=trace.pid, tid=trace.main, ts=trace.ts(at))
    path = trace.op("last", 6, 1).write(tmp_path / "rank0.json")
    assert portable.decode(path, extra_args=True).events.position.tolist() == [0, ABSENT, 3]


def test_starts_are_those_of_the_file(tmp_path: Path) -> None:
    path = mixed().write(tmp_path / "rank0.json")
    written = native.decode_written(path)
    events = native.decode(path).events
    assert np.array_equal(written.start_ns + BASE_NS, events.start_ns)


def test_chosen_rows_have_all_columns(tmp_path: Path) -> None:
    written = native.decode_written(mixed().write(tmp_path / "rank0.json"))
    chosen = written.rows(np.array([3, 0]))
    assert len(chosen) == 2
    assert chosen.position.tolist() == [6, 1]
    assert chosen.arguments.tolist() == [written.arguments[3], written.arguments[0]]


def test_a_file_without_slices_is_left_to_the_portable_decoder(tmp_path: Path) -> None:
    path = tmp_path / "rank0.json"
    path.write_text('{"traceEvents": []}')
    assert native.decode_written(path) is None
