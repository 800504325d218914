"""Damaged and hostile traces: at most the bad event is lost, it is counted, and nothing but InputError is raised."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.builders import Layout, TraceBuilder
from tracekit.errors import InputError
from tracekit.model.events import DecodedTrace
from tracekit.read import inflate
from tracekit.read.portable import decode

LAYOUTS: tuple[Layout, ...] = ("kineto", "compact")


def decode_text(folder: Path, text: bytes, name: str = "rank0.json") -> DecodedTrace:
    path = folder / name
    path.write_bytes(text)
    return decode(path)


def names(trace: DecodedTrace) -> list[str]:
    return [trace.events.strings[i] for i in trace.events.name.tolist()]


def dropped(trace: DecodedTrace) -> dict[str, int]:
    return {note.kind: note.events_dropped for note in trace.notes if note.events_dropped}


def repaired(trace: DecodedTrace) -> list[str]:
    return [note.kind for note in trace.notes if not note.events_dropped]


def with_bad(bad: str, *, at: int = 1, events: int = 3) -> bytes:
    """A trace of `events` good events named e0, e1, ..., with the text `bad` put in front of event `at`."""
    good = [
        f'{{"ph": "X", "name": "e{i}", "cat": "cpu_op", "pid": 1, "tid": 1, "ts": {i}, "dur": 1}}'
        for i in range(events)
    ]
    return (
        '{"distributedInfo": {"rank": 3}, "traceEvents": [' + ",\n".join([*good[:at], bad, *good[at:]]) + "]}"
    ).encode()


GOOD = ["e0", "e1", "e2"]
EVENT = '{"ph": "X", "name": "bad", "cat": "cpu_op", "pid": 1, "tid": 1, "ts": 1, "dur": 1%s}'


# ---- cut off -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["kineto", "compact", "array"])
def test_cut_off_anywhere(tmp_path: Path, layout: Layout) -> None:
    """GIVEN a trace WHEN it is cut at any byte THEN every event that is whole is kept and the trace is incomplete."""
    trace = TraceBuilder(rank=1).op("e0", 0, 1, note={"name": "x"}).kernel("e1", 1, 1).gloo("all_reduce", 3, 4)
    text = trace.text(layout)
    whole = [event["name"] for event in trace.events]
    ends = [text.index(b'"ts"', text.index(name.encode())) for name in whole]  # each event ends behind its own ts
    path = tmp_path / "rank1.json"
    seen = 0
    for cut in range(len(text)):
        path.write_bytes(text[:cut])
        try:
            decoded = decode(path)
        except InputError:
            assert not seen
            continue
        found = names(decoded)
        seen = max(seen, len(found))
        assert found == whole[: len(found)]
        closed = b"]" in text[ends[-1] : cut] and cut >= text.rindex(b"]") + 1
        assert decoded.complete is closed
        assert not dropped(decoded) or cut < text.rindex(b"]")
        if not closed:
            assert [note.kind for note in decoded.notes] == ["truncated"]
        complete_events = sum(_is_whole(text, cut, i, whole) for i in range(len(whole)))
        assert len(found) >= complete_events
    assert seen == len(whole)


def _is_whole(text: bytes, cut: int, index: int, whole: list[str]) -> bool:
    """Whether the closing brace of event `index` is before `cut`."""
    if index + 1 < len(whole):
        following = text.index(f'"{whole[index + 1]}"'.encode())
        end = text.rindex(b"}", 0, text.rindex(b"{", 0, following)) + 1
    else:
        end = text.rindex(b"}", 0, text.rindex(b"]")) + 1
    return cut >= end


def test_a_cut_is_told_once_with_how_much_was_read(tmp_path: Path) -> None:
    """GIVEN a file that ends inside its third event WHEN decoded THEN one note says how far it was read."""
    text = TraceBuilder().op("e0", 0, 1).op("e1", 1, 1).op("e2", 2, 1).text()
    cut = text.index(b'"e2"')
    (note,) = decode_text(tmp_path, text[:cut]).notes
    assert (note.kind, note.severity, note.events_dropped) == ("truncated", "warning", 1)
    assert note.text == (
        f"rank0.json: cut off at byte {cut} after 2 events: merge shows what was read, but a step that may lack events "
        "does not count (all of them where threads and streams stand one after the other, as by Kineto)"
    )

    packed = gzip.compress(text[:cut], mtime=0)
    (note,) = decode_text(tmp_path, packed[:-9]).notes
    assert note.kind == "truncated"
    assert note.text.startswith(f"rank0.json: the gzip stream is cut off at byte {len(packed) - 9} of the file after ")
    assert "a step that may lack events does not count" in note.text


@pytest.mark.parametrize("layout", LAYOUTS)
def test_cut_off_gzip(tmp_path: Path, layout: Layout) -> None:
    trace = TraceBuilder(rank=1)
    for i in range(20):
        trace.op(f"e{i}", i, 1)
    packed = gzip.compress(trace.text(layout), mtime=0)
    counts = []
    for cut in range(len(packed)):
        path = tmp_path / "rank1.json.gz"
        path.write_bytes(packed[:cut])
        try:
            decoded = decode(path)
        except InputError:
            counts.append(0)
            continue
        found = names(decoded)
        assert found == [f"e{i}" for i in range(len(found))]
        assert not decoded.complete
        assert "truncated" in [note.kind for note in decoded.notes]
        counts.append(len(found))
    assert counts == sorted(counts)
    assert counts[-1] == 20


def test_the_text_that_a_damaged_gzip_gave_is_used(tmp_path: Path) -> None:
    """GIVEN a wrong checksum, or garbage inside WHEN decoded THEN what was before it is used, not thrown away."""
    trace = TraceBuilder()
    for i in range(200):
        trace.op(f"e{i}", i, 1, junk=str(hash(i) * 2654435761 % 2**64))
    packed = bytearray(gzip.compress(trace.text(), mtime=0))

    packed[-8:-4] = b"\0\0\0\0"
    wrong_checksum = decode_text(tmp_path, bytes(packed))
    assert names(wrong_checksum) == [f"e{i}" for i in range(200)]
    assert "truncated" in [note.kind for note in wrong_checksum.notes]

    packed[len(packed) // 2 :] = b"\xff" * (len(packed) // 2)
    damaged = decode_text(tmp_path, bytes(packed))
    assert len(names(damaged)) > 50
    assert not damaged.complete


def test_garbage_behind_a_gzip(tmp_path: Path) -> None:
    text = TraceBuilder().op("e0", 0, 1).text()
    for garbage in (b"\0" * 1000, b"garbage", b"\x1f"):
        decoded = decode_text(tmp_path, gzip.compress(text) + garbage)
        assert names(decoded) == ["e0"]
        assert decoded.complete


def test_notes_name_the_file_and_not_its_folder(tmp_path: Path) -> None:
    packed = gzip.compress(TraceBuilder().op("e0", 0, 1).text())
    for text in (packed[:-9], packed + b"garbage", with_bad("null")):
        decoded = decode_text(tmp_path, text)
        assert decoded.notes
        assert {note.file for note in decoded.notes} == {"rank0.json"}
        assert all(note.text.startswith("rank0.json: ") for note in decoded.notes)


# ---- one bad event -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [0, 1, 2, 3])
@pytest.mark.parametrize(
    ("bad", "kind"),
    [
        ("null", "malformed_event"),
        ("7", "malformed_event"),
        ('"text"', "malformed_event"),
        ("[]", "malformed_event"),
        ('[{"ph": "X", "name": "inner", "ts": 1, "dur": 1}]', "malformed_event"),
        ("{}", "malformed_event"),
        (EVENT.replace(' "dur": 1', ' "dur": null') % "", "malformed_event"),
        (EVENT.replace(', "dur": 1', "") % "", "malformed_event"),
        (EVENT.replace('"ts": 1', '"ts": "soon"') % "", "malformed_event"),
        (EVENT.replace('"ts": 1', '"ts": [1]') % "", "malformed_event"),
        (EVENT.replace('"ts": 1', '"ts": true') % "", "malformed_event"),
        (EVENT.replace('"dur": 1', '"dur": -5') % "", "negative_duration"),
        (EVENT.replace('"ts": 1', '"ts": NaN') % "", "non_finite"),
        (EVENT.replace('"dur": 1', '"dur": Infinity') % "", "non_finite"),
        (EVENT.replace('"dur": 1', '"dur": -Infinity') % "", "non_finite"),
        (EVENT.replace('"ts": 1', '"ts": 1e400') % "", "non_finite"),
        (EVENT % ', "args": {"x": 1e400, "External id": 1e400}', "non_finite"),
        (EVENT % ', "args": {"x": NaN}', "non_finite"),
        (EVENT.replace('"ts": 1', f'"ts": {"9" * 5000}') % "", "non_finite"),
        (EVENT % f', "args": {{"External id": {"9" * 5000}}}', "non_finite"),
        (EVENT.replace('"ts": 1', '"ts": "1e999999999999"') % "", "malformed_event"),
        (EVENT.replace('"ts": 1', '"ts": "1e40000000"') % "", "malformed_event"),
        (EVENT.replace('"ts": 1', '"ts": "NaN"') % "", "malformed_event"),
        (EVENT.replace('"ts": 1', '"ts": "-Infinity"') % "", "malformed_event"),
        (EVENT % f', "args": {"[" * 200_000}{"]" * 200_000}', "limit"),
        (EVENT % ', "args": {"a": 1', "malformed_event"),  # a brace is missing
        (EVENT.replace('"bad"', '"ba\\"d') % "", "malformed_event"),  # a quote is missing
        ('{"ph": "X", "name": ', "malformed_event"),
        ('{"ph": "E", "pid": 9, "tid": 9, "ts": 1}', "malformed_event"),
    ],
)
def test_one_bad_event_costs_itself_alone(tmp_path: Path, bad: str, kind: str, at: int) -> None:
    """GIVEN one bad event anywhere in the array WHEN decoded THEN the others are there and one is counted."""
    decoded = decode_text(tmp_path, with_bad(bad, at=at))
    assert names(decoded) == GOOD
    assert sum(dropped(decoded).values()) == 1, decoded.notes
    assert list(dropped(decoded)) == [kind]
    assert decoded.header.rank == 3
    assert all("1 event" in note.text for note in decoded.notes if note.events_dropped)


@pytest.mark.parametrize("at", [0, 1, 3])
@pytest.mark.parametrize(
    ("bad", "kind", "name"),
    [
        (EVENT.replace('"bad"', r'"C:\data\qux"') % "", "escape", r"C:\data\qux"),
        (EVENT.replace('"bad"', r'"\uZZ"') % "", "escape", r"\uZZ"),
        (EVENT.replace('"bad"', '"a\nb\x01c"') % "", "escape", "a b c"),
        (EVENT.replace('"bad"', r'"lone \ud83d"') % "", "escape", "lone �"),
        (EVENT % r', "args": {"path": "C:\x"}', "escape", "bad"),
    ],
)
def test_what_can_be_repaired_is_kept(tmp_path: Path, bad: str, kind: str, name: str, at: int) -> None:
    decoded = decode_text(tmp_path, with_bad(bad, at=at))
    assert names(decoded) == [*GOOD[:at], name, *GOOD[at:]]
    assert repaired(decoded) == [kind]
    assert not dropped(decoded)
    assert decoded.complete


def test_invalid_utf8_is_replaced(tmp_path: Path) -> None:
    text = with_bad(EVENT % "").replace(b'"bad"', b'"caf\xe9"')
    decoded = decode_text(tmp_path, text)
    assert names(decoded) == ["e0", "caf�", "e1", "e2"]
    assert repaired(decoded) == ["encoding"]


def test_surrogate_pairs_are_no_damage(tmp_path: Path) -> None:
    decoded = decode_text(tmp_path, with_bad(EVENT.replace('"bad"', r'"\ud83d\ude00"') % ""))
    assert names(decoded) == ["e0", "😀", "e1", "e2"]
    assert decoded.notes == ()


def test_quotes_that_torch_does_not_escape(tmp_path: Path) -> None:
    """GIVEN `record_function('a"b')` as torch 2.13 writes it WHEN decoded THEN that event alone is lost."""
    trace = TraceBuilder()
    for i in range(5):
        trace.op(f"e{i}", i, 1).label("QUOTED", i, 1)
    for layout in LAYOUTS:
        text = (
            trace.text(layout, tail=True)
            .replace(b'"QUOTED"', b'"a"b"', 1)
            .replace(b'"QUOTED"', b'"{"k": [1, "v"]}"', 1)
        )
        decoded = decode_text(tmp_path, text)
        assert names(decoded) == ["e0", "e1", "e2", "QUOTED", "e3", "QUOTED", "e4", "QUOTED"]
        assert dropped(decoded) == {"malformed_event": 2}
        assert decoded.header.rank == 0


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size", [1, 13, 64, 500, 1 << 20])
def test_damage_at_any_place_of_a_chunk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: Layout, size: int
) -> None:
    trace = TraceBuilder()
    for i in range(6):
        trace.op(f"e{i}", i, 1, frames=[{"name": "f"}] * 20).raw(ph="X", name="bad", ts=trace.ts(i))
    text = trace.text(layout, tail=True)
    monkeypatch.setattr(inflate, "CHUNK_BYTES", size)
    decoded = decode_text(tmp_path, text)
    assert names(decoded) == [f"e{i}" for i in range(6)]
    assert dropped(decoded) == {"malformed_event": 6}
    damaged = text.replace(b'"f"', b'"f', 1)
    decoded = decode_text(tmp_path, damaged)
    assert names(decoded)[-5:] == [f"e{i}" for i in range(1, 6)]
    assert decoded.header.rank == 0


def test_salvaged_events_keep_their_nanoseconds(tmp_path: Path) -> None:
    trace = TraceBuilder(absolute=True).op("a", 1.234, 5.678).op("b", 2.001, 0.001)
    text = trace.text("compact").replace(b'"traceEvents":[', b'"traceEvents":[null,')
    decoded = decode_text(tmp_path, text)
    assert decoded.events.start_ns.tolist() == [trace.wall_ns(1.234), trace.wall_ns(2.001)]
    assert decoded.events.duration_ns.tolist() == [5678, 1]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", "null"),
        ("name", "17"),
        ("cat", "null"),
        ("pid", '"python"'),
        ("pid", "null"),
        ("tid", "1.5"),
        ("pid", "[1]"),
    ],
)
def test_odd_fields_do_not_cost_the_event(tmp_path: Path, field: str, value: str) -> None:
    event = {"ph": '"X"', "name": '"odd"', "cat": '"cpu_op"', "pid": "1", "tid": "1", "ts": "1", "dur": "1"} | {
        field: value
    }
    text = with_bad("{" + ", ".join(f'"{key}": {text}' for key, text in event.items()) + "}")
    decoded = decode_text(tmp_path, text)
    assert len(decoded.events) == 4
    assert not dropped(decoded)


@pytest.mark.parametrize(
    "value", ["1e300", '"x"', "1.5", "18446744073709551615", "true", "[1]", "null", "-1", '"7"', "9223372036854775807"]
)
@pytest.mark.parametrize(
    "key",
    ["External id", "correlation", "Sequence number", "Fwd thread id", "In msg nelems", "Seq", "dtype", "Input Dims"],
)
def test_odd_arguments_do_not_cost_the_event(tmp_path: Path, key: str, value: str) -> None:
    decoded = decode_text(tmp_path, with_bad(EVENT % f', "args": {{"Collective name": "allreduce", "{key}": {value}}}'))
    assert names(decoded) == ["e0", "bad", "e1", "e2"]
    assert not dropped(decoded)


def test_times_out_of_range(tmp_path: Path) -> None:
    """GIVEN starts of zero, lost clocks and wrapped counters WHEN decoded THEN they are dropped before any sum."""
    trace = TraceBuilder(absolute=True)
    for i in range(5):
        trace.op(f"e{i}", i, 1)
    for ts, dur in (
        ("0", "1"),
        ("18446744073709551615", "1"),
        ("1", "9e15"),
        ("-9223372036854775808", "0"),
        ("4e18", "1"),
    ):
        trace.raw(ph="X", name="bad", cat="cpu_op", pid=1, tid=1, ts=Decimal(ts), dur=Decimal(dur))
    decoded = decode_text(tmp_path, trace.text())
    assert names(decoded) == [f"e{i}" for i in range(5)]
    assert sum(dropped(decoded).values()) == 5


# ---- the header --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("baseTimeNanoseconds", "1e400"),
        ("baseTimeNanoseconds", "9" * 25),
        ("baseTimeNanoseconds", '"' + "9" * 5000 + '"'),
        ("baseTimeNanoseconds", '"²"'),
        ("baseTimeNanoseconds", '"--5"'),
        ("baseTimeNanoseconds", "null"),
        ("distributedInfo", '{"rank": "--1", "world_size": "²"}'),
        ("distributedInfo", '{"rank": -1, "world_size": -1}'),
        ("distributedInfo", '{"rank": 1000000000000, "world_size": 1000000000000}'),
        ("distributedInfo", '{"rank": true, "world_size": [2], "backend": 5, "pg_config": {"a": 1}}'),
        ("distributedInfo", '{"pg_config": [null, {"ranks": [null, "x", 1e9], "pg_name": 4}]}'),
        ("distributedInfo", "[" * 100_000),
        ("deviceProperties", '[null, {"name": 5}, {}]'),
        ("host_name", "[1]"),
        ("tracekit", "null"),
        ("tracekit", '{"version": 1}'),
        ("tracekit", "{" * 100_000),
        ("tracekit", '"' + "x" * 100_000 + '"'),
        ("unknown", "{NaN}"),
    ],
)
def test_a_damaged_header_costs_no_event(tmp_path: Path, key: str, value: str) -> None:
    event = '{"ph": "X", "name": "e0", "cat": "cpu_op", "pid": 1, "tid": 1, "ts": 1, "dur": 1}'
    for text in (f'{{"{key}": {value}, "traceEvents": [{event}]}}', f'{{"traceEvents": [{event}], "{key}": {value}}}'):
        decoded = decode_text(tmp_path, text.encode())
        assert names(decoded) == ["e0"]
        assert decoded.header.metadata is None
        assert decoded.header.rank is None
        assert decoded.header.world_size is None


def test_the_good_keys_of_a_damaged_header_are_read(tmp_path: Path) -> None:
    text = with_bad("null", at=0).replace(b'{"distributedInfo"', b'{"bad": NaN, "a"b": 1, "distributedInfo"')
    decoded = decode_text(tmp_path, text)
    assert names(decoded) == GOOD
    assert decoded.header.rank == 3


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m | {"world_size": 10**12},
        lambda m: m | {"rank": -4},
        lambda m: m | {"rank": 10**30},
        lambda m: m | {"steps": [{"step": 1, "start_ns": 10**30, "end_ns": None}]},
        lambda m: m | {"steps": [{"step": 10**30, "start_ns": 1, "end_ns": None}]},
        lambda m: m | {"groups": [m["groups"][0] | {"ranks": {"slice": [0, 10**12, 1]}}]},
        lambda m: m | {"groups": [m["groups"][0] | {"ranks": {"slice": [0, 4, 0]}}]},
        lambda m: m | {"clock": {"reference_rank": 0, "method": "store", "samples": [
            {"at_ns": 10**30, "offset_ns": 10**30, "error_ns": 0, "rtt_ns": 0}]}},
    ],
)  # fmt: skip
def test_hostile_metadata_is_refused_as_a_whole(
    tmp_path: Path, change: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    """GIVEN numbers in the tracekit key that no machine has WHEN decoded THEN it is left out, with a note."""
    trace = TraceBuilder().step(1, 0, 10).op("e0", 0, 1).capture()
    document = json.loads(trace.text())
    document["tracekit"] = change(document["tracekit"])
    decoded = decode_text(tmp_path, json.dumps(document).encode())
    assert decoded.header.metadata is None
    assert [note.kind for note in decoded.notes] == ["not_available"]
    assert len(decoded.events) == 2


@pytest.mark.parametrize(
    "mesh",
    [
        {"names": ["dp"], "shape": [2, 2], "coordinate": [0]},
        {"names": ["dp", "tp"], "shape": [2, 2], "coordinate": [0]},
        {"names": [], "shape": [], "coordinate": [0]},
        {"names": ["dp"], "shape": [2], "coordinate": [2]},
        {"names": ["dp"], "shape": [0], "coordinate": [0]},
    ],
)
def test_a_mesh_that_contradicts_itself_costs_the_mesh_alone(tmp_path: Path, mesh: dict[str, Any]) -> None:
    document = json.loads(TraceBuilder().step(1, 0, 10).op("e0", 0, 1).capture().text())
    document["tracekit"]["mesh"] = mesh
    decoded = decode_text(tmp_path, json.dumps(document).encode())
    assert decoded.header.metadata is not None
    assert decoded.header.metadata.mesh is None
    assert [note.kind for note in decoded.notes] == ["not_available"]
    assert "mesh" in decoded.notes[0].text


# ---- anything at all ---------------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    changes=st.lists(
        st.tuples(st.integers(0, 10**6), st.sampled_from([*b'"{}[]:,\\\x00\xff 0-e']), st.booleans()), max_size=6
    )
)
def test_any_bytes_decode_or_are_refused(tmp_path: Path, changes: list[tuple[int, int, bool]]) -> None:
    """GIVEN a trace with bytes replaced or put in anywhere WHEN decoded THEN there is a table or an InputError."""
    trace = TraceBuilder().step(1, 0, 10).gloo("all_reduce", 1, 2).kernel("k", 1, 2, launched_at=0).capture()
    text = bytearray(trace.text("compact"))
    for position, byte, insert in changes:
        at = position % len(text)
        text[at : at + (not insert)] = bytes([byte])
    try:
        decoded = decode_text(tmp_path, bytes(text))
    except InputError:
        return
    assert len(decoded.events) <= len(trace.events) + len(changes)
