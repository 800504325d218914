"""Damaged and hostile events: at most the bad event is lost and counted, and only InputError is raised."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.builders import TraceBuilder
from tests.trace_text import Layout
from tests.unit.read.decode.damage import EVENT, GOOD, decode_text, dropped, names, repaired, with_bad
from tracekit.errors import InputError
from tracekit.read.files import inflate

LAYOUTS: tuple[Layout, ...] = ("kineto", "compact")


@pytest.mark.parametrize("at", [0, 1, 2, 3])
@pytest.mark.parametrize(
    ("bad", "kind"),
    [
        ("null", "malformed-event"),
        ("7", "malformed-event"),
        ('"text"', "malformed-event"),
        ("[]", "malformed-event"),
        ('[{"ph": "X", "name": "inner", "ts": 1, "dur": 1}]', "malformed-event"),
        ("{}", "malformed-event"),
        (EVENT.replace(' "dur": 1', ' "dur": null') % "", "malformed-event"),
        (EVENT.replace(', "dur": 1', "") % "", "malformed-event"),
        (EVENT.replace('"ts": 1', '"ts": "soon"') % "", "malformed-event"),
        (EVENT.replace('"ts": 1', '"ts": [1]') % "", "malformed-event"),
        (EVENT.replace('"ts": 1', '"ts": true') % "", "malformed-event"),
        (EVENT.replace('"dur": 1', '"dur": -5') % "", "negative-duration"),
        (EVENT.replace('"ts": 1', '"ts": NaN') % "", "non-finite"),
        (EVENT.replace('"dur": 1', '"dur": Infinity') % "", "non-finite"),
        (EVENT.replace('"dur": 1', '"dur": -Infinity') % "", "non-finite"),
        (EVENT.replace('"ts": 1', '"ts": 1e400') % "", "non-finite"),
        (EVENT.replace('"ts": 1', f'"ts": {"9" * 5000}') % "", "non-finite"),
        (EVENT.replace('"ts": 1', '"ts": "1e999999999999"') % "", "malformed-event"),
        (EVENT.replace('"ts": 1', '"ts": "1e40000000"') % "", "malformed-event"),
        (EVENT.replace('"ts": 1', '"ts": "NaN"') % "", "malformed-event"),
        (EVENT.replace('"ts": 1', '"ts": "-Infinity"') % "", "malformed-event"),
        (EVENT % f', "args": {"[" * 200_000}{"]" * 200_000}', "limit"),
        (EVENT % ', "args": {"a": 1', "malformed-event"),  # a brace is missing
        (EVENT.replace('"bad"', '"ba\\"d') % "", "malformed-event"),  # a quote is missing
        ('{"ph": "X", "name": ', "malformed-event"),
        ('{"ph": "E", "pid": 9, "tid": 9, "ts": 1}', "malformed-event"),
    ],
)
def test_one_bad_event_costs_no_other(tmp_path: Path, bad: str, kind: str, at: int) -> None:
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
def test_events_that_can_be_repaired_are_kept(tmp_path: Path, bad: str, kind: str, name: str, at: int) -> None:
    decoded = decode_text(tmp_path, with_bad(bad, at=at))
    assert names(decoded) == [*GOOD[:at], name, *GOOD[at:]]
    assert repaired(decoded) == [kind]
    assert not dropped(decoded)
    assert decoded.complete


@pytest.mark.parametrize(
    ("key", "value", "kind"),
    [
        *(("memory bandwidth (GB/s)", value, "non-finite") for value in ("NaN", "-Infinity", "inf", "1.#INF")),
        *(("External id", value, "non-finite") for value in ("-nan(ind)", "1e400", "9" * 5000)),
        *(("External id", value, "malformed-event") for value in ("", "None", "+5", ".5", "0x1f", "007")),
    ],
)
def test_a_value_that_is_none_costs_the_argument_alone(tmp_path: Path, key: str, value: str, kind: str) -> None:
    """GIVEN an argument that no JSON has WHEN decoded THEN the event, its other arguments and all others are there."""
    bad = EVENT % f', "args": {{"text": "of [1, None]", "{key}": {value}, "correlation": 7}}'
    decoded = decode_text(tmp_path, with_bad(bad, at=1), extra_args=True)
    assert (names(decoded), repaired(decoded), dropped(decoded)) == (["e0", "bad", "e1", "e2"], [kind], {})
    events = decoded.events
    assert (events.duration_ns[1], events.correlation[1], events.external_id[1]) == (1000, 7, -1)
    assert '"text": "of [1, None]"' in events.strings[events.extra_args[1]]


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
    """GIVEN `record_function('a"b')` as torch 2.13 writes it WHEN decoded THEN only that event is lost."""
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
        assert dropped(decoded) == {"malformed-event": 2}
        assert decoded.header.rank == 0


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size", [1, 13, 64, 500, 1 << 20])
def test_damage_anywhere_in_a_chunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: Layout, size: int) -> None:
    trace = TraceBuilder()
    for i in range(6):
        trace.op(f"e{i}", i, 1, frames=[{"name": "f"}] * 20).raw(ph="X", name="bad", ts=trace.ts(i))
    text = trace.text(layout, tail=True)
    monkeypatch.setattr(inflate, "CHUNK_BYTES", size)
    decoded = decode_text(tmp_path, text)
    assert names(decoded) == [f"e{i}" for i in range(6)]
    assert dropped(decoded) == {"malformed-event": 6}
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
