"""Undamaged traces: their layout, packing and way of writing numbers do not matter."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.builders import BASE_NS, ORIGIN_US, TraceBuilder
from tests.trace_text import Layout, Packing, pack
from tests.unit.read.decode.decoders import decode
from tracekit.errors import NotATraceError
from tracekit.model.events import DecodedTrace
from tracekit.read.files import inflate

LAYOUTS: tuple[Layout, ...] = ("kineto", "compact", "pretty", "crlf")


def decode_text(folder: Path, text: bytes, name: str = "rank0.json") -> DecodedTrace:
    path = folder / name
    path.write_bytes(text)
    return decode(path)


def slices(trace: DecodedTrace) -> list[tuple[str, str, int, int, Any, Any]]:
    """Return (category, name, start, duration, pid, tid) of each row, in file order."""
    events = trace.events
    return [
        (
            events.strings[category],
            events.strings[name],
            start,
            duration,
            events.tracks[track].pid,
            events.tracks[track].tid,
        )
        for category, name, start, duration, track in zip(
            events.category.tolist(),
            events.name.tolist(),
            events.start_ns.tolist(),
            events.duration_ns.tolist(),
            events.track.tolist(),
            strict=True,
        )
    ]


def expected_slices(text: bytes) -> list[tuple[str, str, int, int, Any, Any]]:
    """The same, read by the standard library with decimal numbers."""
    document = json.loads(text, parse_float=Decimal, parse_int=Decimal)
    base = int(document.get("baseTimeNanoseconds", 0)) if isinstance(document, dict) else 0
    events = document["traceEvents"] if isinstance(document, dict) else document

    def identity(value: Any) -> Any:
        return int(value) if isinstance(value, Decimal) else value

    return [
        (e["cat"], e["name"], base + int(e["ts"] * 1000), int(e["dur"] * 1000), identity(e["pid"]), identity(e["tid"]))
        for e in events
        if e["ph"] == "X"
    ]


def everything() -> TraceBuilder:
    """A trace with every sort of event that Kineto writes."""
    trace = TraceBuilder(rank=1, world_size=4)
    trace.raw(ph="M", name="process_name", ts=trace.ts(0), pid=trace.pid, tid=0, args={"name": "python3"})
    trace.raw(ph="M", name="thread_name", ts=trace.ts(0), pid=trace.pid, tid=trace.main, args={"name": "main"})
    trace.step(7, 0, 100)
    trace.op("aten::mm", 1.001, 2.999, **{"Sequence number": 12, "Fwd thread id": 0, "Input Dims": [[3, 4], [4, 5]]})
    trace.kernel("gemm", 10, 40, launched_at=2).nccl("all_reduce", 30, 30, launched_at=5, Seq=41)
    trace.gloo("all_gather", 50, 20, issued_at=48)
    trace.raw(ph="s", id=1, pid=0, tid=7, ts=trace.ts(10), cat="ac2g", name="ac2g")
    trace.raw(ph="f", id=1, pid=0, tid=7, ts=trace.ts(10), cat="ac2g", name="ac2g", bp="e")
    trace.raw(ph="C", name="GPU 0 Memory", pid=0, ts=trace.ts(11), args={"bytes": 1})
    trace.event("PyTorch Profiler (0)", "Trace", 0, 100, pid="Spans", thread="PyTorch Profiler", args={"Op count": 0})
    trace.raw(ph="i", s="g", name="Record Window End", pid="", tid="", ts=trace.ts(100))
    return trace.capture(groups=[])


@pytest.mark.parametrize("tail", [False, True])
@pytest.mark.parametrize("packing", ["plain", "gz", "members"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layout_and_packing_do_not_matter(tmp_path: Path, layout: Layout, packing: Packing, tail: bool) -> None:
    trace = everything()
    text = trace.text(layout, tail=tail)

    decoded = decode_text(tmp_path, pack(text, packing))

    assert slices(decoded) == expected_slices(text)
    assert decoded.complete
    assert decoded.notes == ()
    assert decoded.header.rank == 1
    assert decoded.header.world_size == 4
    assert decoded.header.host == "node0"
    assert decoded.header.base_time_ns == BASE_NS
    assert decoded.header.metadata == trace.metadata
    assert decoded.events.counters.names == ("GPU 0 Memory · bytes",)
    assert decoded.events.other_phases == {"M": 2, "f": 1, "i": 1, "s": 1}


def test_byte_order_mark_and_white_space_in_front(tmp_path: Path) -> None:
    text = everything().text()
    assert slices(decode_text(tmp_path, b"\xef\xbb\xbf" + text)) == expected_slices(text)
    assert slices(decode_text(tmp_path, b" \r\n\t" + text + b"\n\n")) == expected_slices(text)


def test_array_form(tmp_path: Path) -> None:
    text = everything().text("array")
    decoded = decode_text(tmp_path, text)
    assert slices(decoded) == expected_slices(text)
    assert decoded.header.rank is None
    assert decoded.complete


def test_kept_arguments(tmp_path: Path) -> None:
    events = decode(everything().write(tmp_path / "a.json")).events
    row = {events.strings[name]: i for i, name in enumerate(events.name.tolist())}

    assert events.sequence_number[row["aten::mm"]] == 12
    assert events.forward_thread[row["aten::mm"]] == 0
    assert events.correlation[row["gemm"]] == events.external_id[row["gemm"]] >= 1
    assert events.correlation[row["aten::mm"]] == -1

    arguments = events.collective_arguments
    names = [events.strings[events.name[i]].split("_")[0] for i in arguments.row]
    assert names == ["ncclDevKernel", "c10d::", "gloo:all"]
    assert events.strings[arguments.collective[0]] == "allreduce"
    assert events.strings[arguments.dtype[0]] == "Float"
    assert events.strings[arguments.group_ranks[0]] == "[0, 1, 2, 3]"
    assert arguments.sequence.tolist() == [41, -1, -1]
    assert arguments.in_elements.tolist() == [1000, -1, -1]
    assert json.loads(events.strings[arguments.input_shapes[1]]) == [[[1000]], [], []]
    assert json.loads(events.strings[arguments.input_shapes[2]]) == [[1000]]


def test_the_other_end_of_a_message_is_kept(tmp_path: Path) -> None:
    trace = TraceBuilder().op("record_param_comms", 0, 1, **{"Collective name": "send", "Rank": 1, "Dst Rank": 6})
    trace.op("record_param_comms", 2, 1, **{"Collective name": "recv", "Rank": 0, "Src Rank": 4})

    arguments = decode(trace.write(tmp_path / "a.json")).events.collective_arguments

    assert arguments.destination_rank.tolist() == [6, -1]
    assert arguments.source_rank.tolist() == [-1, 4]


def test_threads_and_processes_keep_their_names(tmp_path: Path) -> None:
    tracks = decode(everything().write(tmp_path / "a.json")).events.tracks
    main = next(track for track in tracks if track.tid == 4010)
    assert (main.process_name, main.thread_name) == ("python3", "main")
    assert any((track.pid, track.tid) == ("Spans", "PyTorch Profiler") for track in tracks)


@pytest.mark.parametrize(
    ("ts", "nanoseconds"),
    [
        ("0", 0),
        ("12", 12_000),
        ("12.345", 12_345),
        ("0.001", 1),
        ("4396967577351.451", 4_396_967_577_351_451),
        ("1795253993461097.738", 1_795_253_993_461_097_738),  # above 2**43 us, a float64 has no nanoseconds
        ("1795253993461097.001", 1_795_253_993_461_097_001),
        ("1795253993461097", 1_795_253_993_461_097_000),
        ("1.795253993461097738e15", 1_795_253_993_461_097_738),
        ('"12.345"', 12_345),
        ('"1795253993461097.738"', 1_795_253_993_461_097_738),
    ],
)
def test_starts_are_exact_to_the_nanosecond(tmp_path: Path, ts: str, nanoseconds: int) -> None:
    event = '{"ph":"X","name":"a","cat":"cpu_op","pid":1,"tid":1,"ts":%s,"dur":1.5}'
    text = f'{{"traceEvents":[{event % ts},{event % ts}]}}'
    assert decode_text(tmp_path, text.encode()).events.start_ns.tolist() == [nanoseconds] * 2


@pytest.mark.parametrize("others", ["12", '"12"', "12.5"])
def test_starts_are_exact_among_numbers_of_other_types(tmp_path: Path, others: str) -> None:
    event = '{"ph":"X","name":"a","cat":"cpu_op","pid":1,"tid":1,"ts":%s,"dur":%s}'
    text = f'{{"traceEvents":[{event % (others, others)},{event % ("12345678901.234", 7)}]}}'
    events = decode_text(tmp_path, text.encode()).events
    assert events.start_ns.tolist() == [12_500 if others == "12.5" else 12_000, 12_345_678_901_234]
    assert events.duration_ns.tolist() == [12_500 if others == "12.5" else 12_000, 7_000]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    times=st.lists(st.tuples(st.integers(0, 10**10), st.integers(0, 10**10)), min_size=1, max_size=8),
    absolute=st.booleans(),
)
def test_every_nanosecond_survives(tmp_path: Path, times: list[tuple[int, int]], absolute: bool) -> None:
    trace = TraceBuilder(absolute=absolute)
    for start_ns, duration_ns in times:
        trace.op("op", start_ns / 1000, duration_ns / 1000)
    events = decode(trace.write(tmp_path / "a.json", "compact")).events
    origin_ns = BASE_NS + ORIGIN_US * 1000
    assert events.start_ns.tolist() == [origin_ns + start_ns for start_ns, _ in times]
    assert events.duration_ns.tolist() == [duration_ns for _, duration_ns in times]


def test_begin_and_end_make_a_slice(tmp_path: Path) -> None:
    trace = TraceBuilder()
    thread = {"cat": "cpu_op", "pid": 1, "tid": 2}
    trace.raw(ph="B", name="outer", **thread, ts=trace.ts(1))
    trace.raw(ph="B", name="inner", **thread, ts=trace.ts(2.5))
    trace.raw(ph="B", name="elsewhere", cat="cpu_op", pid=1, tid=3, ts=trace.ts(3))
    trace.raw(ph="E", pid=1, tid=2, ts=trace.ts(4))
    trace.raw(ph="E", pid=1, tid=3, ts=trace.ts(6))
    trace.raw(ph="E", pid=1, tid=2, ts=trace.ts(9))
    trace.raw(ph="E", pid=1, tid=2, ts=trace.ts(10))  # closes nothing
    trace.raw(ph="B", name="open", **thread, ts=trace.ts(11))  # never closed

    decoded = decode(trace.write(tmp_path / "a.json"))

    actual = {name: (start - trace.wall_ns(0), duration) for _, name, start, duration, _, _ in slices(decoded)}
    assert actual == {"inner": (2500, 1500), "elsewhere": (3000, 3000), "outer": (1000, 8000)}
    (note,) = decoded.notes
    assert (note.id, note.events_dropped) == ("malformed-event", 2)


# ---- chunks: the result does not depend on where the text is cut ---------------------------------------------------


def nested_names() -> TraceBuilder:
    """Events whose arguments hold lists of objects that look like events."""
    trace = TraceBuilder()
    for i in range(4):
        trace.op(
            f"op {i}", 10 * i, 5, stack=[{"name": "inner"}, {"name": f"frame {i}"}, {"ph": "X", "ts": 1, "dur": 1}]
        )
        trace.op("plain", 10 * i + 6, 1)
    return trace


@pytest.mark.parametrize("size", [1, 2, 3, 7, 16, 61, 100, 251, 1000])
@pytest.mark.parametrize("packing", ["plain", "gz", "members"])
@pytest.mark.parametrize("make", [everything, nested_names])
def test_chunks_may_end_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Any, packing: Packing, size: int
) -> None:
    """GIVEN chunks of `size` bytes WHEN decoded THEN the trace is the same as from one chunk."""
    for tail in (False, True):
        text = make().text("compact" if size % 2 else "kineto", tail=tail)
        monkeypatch.setattr(inflate, "CHUNK_BYTES", size)
        decoded = decode_text(tmp_path, pack(text, packing))
        assert slices(decoded) == expected_slices(text)
        assert decoded.notes == ()
        assert decoded.complete
        assert decoded.header.rank == make().rank


def test_a_single_huge_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inflate, "CHUNK_BYTES", 1 << 12)
    trace = TraceBuilder().op("before", 0, 1)
    trace.op("huge", 1, 1, **{"Call stack": ["},{" * 100_000]}).op("after", 2, 1)
    text = trace.text()
    assert [row[1] for row in slices(decode_text(tmp_path, text))] == ["before", "huge", "after"]


# ---- files that are no traces --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"   \n",
        b"\xef\xbb\xbf",
        b"{}",
        b"null",
        b"hello",
        b'{"a": 1}',
        b'{"nested": {"traceEvents": [{"ph": "X"}]}}',
        b'{"traceEvents": {}}',
        b"\x00" * 100,
        gzip.compress(b"", mtime=0),
        gzip.compress(b"{}", mtime=0),
        b"\x1f\x8b",
    ],
)
def test_a_file_without_events_is_no_trace(tmp_path: Path, text: bytes) -> None:
    with pytest.raises(NotATraceError) as caught:
        decode_text(tmp_path, text, "odd.json")
    assert "odd.json" in caught.value.message
    assert caught.value.hint


def test_the_key_inside_another_object_is_not_the_events(tmp_path: Path) -> None:
    trace = TraceBuilder().op("a", 0, 1)
    trace.header["other"] = {"traceEvents": [{"ph": "X", "name": "no", "ts": 1, "dur": 1}], "s": '"traceEvents": ['}
    text = trace.text()
    assert slices(decode_text(tmp_path, text)) == expected_slices(text)


@pytest.mark.parametrize(
    "text",
    [
        b"[]",
        b'{"traceEvents": []}',
        b'{"traceEvents":[ ],"a":1}',
        b'{"traceEvents": [',
        b'{"traceEvents": [null, {"ph": "X", "name": "x", "ts": 1}, {"ph": "M", "name": "process_name", "pid": 1}]}',
    ],
)
def test_a_trace_without_usable_events_is_refused(tmp_path: Path, text: bytes) -> None:
    with pytest.raises(NotATraceError) as caught:
        decode_text(tmp_path, text, "odd.json")
    assert caught.value.message.startswith("odd.json: no events in it")
    assert caught.value.kind == "empty"
    assert "record" in caught.value.hint
