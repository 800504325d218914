"""The compiled encoder and the portable one: equal track rows, and equal packets on them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TracePacket, TrackEvent

from tests.components import require_module
from tracekit.model.events import ABSENT
from tracekit.read.decode.field_values import select_extra_args
from tracekit.render.perfetto import portable_packets
from tracekit.render.perfetto.extra_args import EncodedTrackRow, Encoder, ExtraArgsEncoder
from tracekit.render.perfetto.fields import Interned, fields_of
from tracekit.render.slices import Argument, Flows, Slices

TEXTS = [f"text {k}" for k in range(300)]  # interned numbers take one byte or two
SEQUENCE = 5000
START_NS = 1_752_000_000_123_456_789


@pytest.fixture
def compiled() -> Any:
    """Skips, with the reason, where there was no compiler."""
    require_module("tracekit.render.perfetto._encoder")
    return require_module("tracekit.render.perfetto.compiled_packets")


# Values of arguments in JSON.
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.just("long " * 1000),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(st.text(), VALUES, max_size=6)


TrackRows = list[tuple[int, int, list[TracePacket]]]


def encoded(encoder: Encoder, slices: Slices) -> list[EncodedTrackRow]:
    interned = Interned()
    fields, extra_args = fields_of(slices, interned), ExtraArgsEncoder(interned).encode(slices)
    return encoder(slices, fields, extra_args, SEQUENCE)


def decoded(track_rows: list[EncodedTrackRow]) -> TrackRows:
    """Start, end and packets of each track row."""
    traces = [Trace.FromString(b"".join(track_row.packets)) for track_row in track_rows]
    return [
        (track_row.start_ns, track_row.end_ns, list(trace.packet))
        for track_row, trace in zip(track_rows, traces, strict=True)
    ]


def by_both(slices: Slices) -> tuple[TrackRows, TrackRows]:
    """What the portable encoder and the compiled one write."""
    compiled = require_module("tracekit.render.perfetto.compiled_packets")
    return decoded(encoded(portable_packets.encode_track_rows, slices)), decoded(
        encoded(compiled.encode_track_rows, slices)
    )


@st.composite
def tables(draw: st.DrawFn) -> Slices:
    """Slices that take names, arguments, arrows and extra arguments from a table of more rows, in another order."""
    rows = draw(st.integers(1, 12))

    def column(values: st.SearchStrategy[int], dtype: type, length: int = rows) -> np.ndarray:
        return np.array(draw(st.lists(values, min_size=length, max_size=length)), dtype=dtype)

    text, number = st.integers(ABSENT, len(TEXTS) - 1), st.integers(-(2**63), 2**63 - 1) | st.integers(-300, 300)
    arguments = []
    for k in range(draw(st.integers(0, 10))):
        is_text, mask = draw(st.booleans()), draw(st.booleans())
        arguments.append(
            Argument(
                name=f"argument {k}",
                values=column(text, np.int32) if is_text else column(number, np.int64),
                present=column(st.integers(0, 1), np.bool_) if mask else None,
                is_text=is_text,
            )
        )
    flows = [
        Flows(ids=column(st.integers(0, 2**64 - 1) | st.just(0), np.uint64), role=np.zeros(rows, dtype=np.uint8))
        for _ in range(draw(st.integers(0, 2)))
    ]
    texts = [json.dumps(each, ensure_ascii=draw(st.booleans())) for each in draw(st.lists(OBJECTS, max_size=4))]
    objects = [each for each in (select_extra_args(text.encode()) for text in texts) if each]
    extra_args = st.sampled_from([ABSENT, *range(len(TEXTS), len(TEXTS) + len(objects))])
    of_slices = draw(st.none() | st.lists(st.integers(0, rows - 1), min_size=1, max_size=12))
    slices = rows if of_slices is None else len(of_slices)
    return Slices(
        start_ns=START_NS * draw(st.integers(0, 1)) + column(st.integers(0, 9), np.int64, slices),
        duration_ns=column(st.integers(0, 9), np.int64, slices),
        name=column(text, np.int32),
        category=column(text, np.int32),
        strings=[*TEXTS, *objects],
        arguments=tuple(arguments),
        flows=tuple(flows),
        extra_args=column(extra_args, np.int32) if draw(st.booleans()) else None,
        rows=None if of_slices is None else np.array(of_slices, dtype=np.int32),
    )


def one_slice(arguments: int) -> Slices:
    """A slice whose packet grows with its arguments, to a few kilobytes."""
    none = np.full(1, ABSENT, dtype=np.int32)
    return Slices(
        start_ns=np.array([START_NS]), duration_ns=np.array([5]), name=none, category=none, strings=[],
        arguments=tuple(Argument(name=f"a{k}", values=np.array([-k])) for k in range(arguments)),
    )  # fmt: skip


@settings(deadline=None)
@given(slices=tables())
@example(slices=one_slice(arguments=8))
@example(slices=one_slice(arguments=100))
@example(slices=one_slice(arguments=1500))
def test_both_encoders_write_equal_packets(slices: Slices) -> None:
    portable, compiled = by_both(slices)
    assert compiled == portable


@pytest.mark.parametrize("distinct", [1, 3000])
def test_extra_arguments_of_many_lengths_in_several_blocks(distinct: int) -> None:
    """GIVEN 40,000 slices, two of three with 8 to 3007 bytes of extra arguments THEN each has its own."""
    count = 40_000
    column = np.zeros(count, dtype=np.int32)

    def arguments(number: int) -> dict[Any, int]:
        return {f"k{number % 7}": number} | dict.fromkeys(range(number % 100), True)

    ids = np.where(np.arange(count) % 3, 1 + np.arange(count) * 7 % distinct, ABSENT).astype(np.int32)
    slices = Slices(
        start_ns=np.arange(count), duration_ns=column.astype(np.int64), name=column, category=column,
        strings=["op", *(select_extra_args(json.dumps(arguments(k)).encode()) for k in range(distinct))],
        extra_args=ids,
    )  # fmt: skip
    portable, compiled = by_both(slices)
    assert compiled == portable
    ((_, _, packets),) = compiled
    opened = [p.track_event for p in packets if p.track_event.type == TrackEvent.TYPE_SLICE_BEGIN]
    first = [event.debug_annotations[0].int_value + 1 if event.debug_annotations else ABSENT for event in opened]
    assert first == ids.tolist()


def test_a_stack_deeper_than_the_limit_continues_on_the_next_lane() -> None:
    """GIVEN 1200 slices inside each other THEN 512, 512 and 176 of them are on three track rows."""
    depth = np.arange(1200)
    column = np.zeros(1200, dtype=np.int32)
    slices = Slices(start_ns=depth, duration_ns=5000 - 2 * depth, name=column, category=column, strings=["a"])
    for track_rows in by_both(slices):
        opened = [
            [p.timestamp for p in each if p.track_event.type == TrackEvent.TYPE_SLICE_BEGIN] for *_, each in track_rows
        ]
        assert opened == [list(range(512)), list(range(512, 1024)), list(range(1024, 1200))]
        assert [(start_ns, end_ns) for start_ns, end_ns, _ in track_rows] == [(0, 5000), (512, 4488), (1024, 3976)]


INT32, INT64 = np.zeros(2, dtype=np.int32), np.zeros(2, dtype=np.int64)
TEMPLATE = (b"\x0a", b"\x08", b"\x50\x02\x5a", b"\x48\x01", b"\x48\x02")
TIMES = {"order": np.arange(2, dtype=np.int32), "start_ns": INT64, "duration_ns": INT64}
FITTING = TIMES | {"rows": None, "fields": [], "extra_args": None, "template": TEMPLATE}


def field(**other: object) -> list[tuple[object, ...]]:
    """(annotation, prefix, values, numbers, present, is_fixed64)"""
    columns = {"values": INT64.view(np.uint64), "numbers": None, "present": None} | other
    return [(b"", b"\x50", *columns.values(), False)]


def extra_args(**other: object) -> tuple[object, ...]:
    """(ids, starts, sizes, content)"""
    return tuple(({"ids": INT32, "starts": INT64, "sizes": INT64 + 3, "content": b"abc"} | other).values())


@pytest.mark.parametrize(
    "other",
    [
        {"order": np.array([0, 2], dtype=np.int32)},
        {"order": np.array([-1], dtype=np.int32)},
        {"order": INT64},
        {"duration_ns": INT64[:1]},
        {"rows": INT32[:1]},
        {"rows": INT32 + np.int32(7), "fields": field()},
        {"rows": INT32 - np.int32(1), "fields": field()},
        {"fields": field(values=INT64[:1].view(np.uint64))},
        {"fields": field(values=INT32)},
        {"fields": field(values=INT32 + np.int32(3), numbers=np.zeros(3, dtype=np.uint64))},
        {"fields": field(present=np.ones(0, dtype=np.bool_))},
        {"extra_args": extra_args(ids=INT32[:1])},
        {"extra_args": extra_args(ids=INT64)},
        {"extra_args": extra_args(ids=INT32 + np.int32(2))},
        {"extra_args": extra_args(starts=INT64[:0])},
        {"extra_args": extra_args(starts=INT64 + 1)},
        {"extra_args": extra_args(starts=INT64 - 1)},
        {"extra_args": extra_args(sizes=INT64[:0])},
        {"extra_args": extra_args(sizes=INT64 + 4)},
        {"extra_args": extra_args(sizes=INT64 - 1)},
        {"extra_args": extra_args(content=b"")},
        {"extra_args": extra_args(content=INT64)},
        {"template": (b"x" * 17, *TEMPLATE[1:])},
    ],
)
def test_columns_that_do_not_fit_are_refused(other: dict[str, Any], compiled: Any) -> None:
    """GIVEN columns that would be read beyond their end THEN ValueError, and no foreign memory is read."""
    assert sum(map(len, compiled.Packets(**FITTING))) > 0
    assert sum(map(len, compiled.Packets(**FITTING | {"fields": field()}))) > 0
    assert b"".join(compiled.Packets(**FITTING | {"extra_args": extra_args()})).count(b"abc") == 2
    with pytest.raises(ValueError, match=r"a (column|row|tag)"):
        list(compiled.Packets(**FITTING | other))


def test_columns_that_change_meanwhile_are_refused(compiled: Any) -> None:
    """GIVEN sizes of extra arguments that grow meanwhile THEN none is written beyond its block."""
    content = b"x" * 1_000_000
    sizes = np.array([3, 3], dtype=np.int64)
    columns = (INT32 * 0, np.zeros(2, dtype=np.int64), sizes, content)
    packets = compiled.Packets(**FITTING | {"extra_args": columns})
    sizes[:] = len(content)
    with pytest.raises(ValueError, match="a row's bytes are more than they were"):
        list(packets)


def test_a_slice_that_ends_beyond_int64_is_refused(compiled: Any) -> None:
    packets = compiled.Packets(
        **FITTING | {"duration_ns": np.full(2, np.iinfo(np.int64).max), "start_ns": INT64 * 0 + 1}
    )
    with pytest.raises(ValueError, match="a slice ends beyond int64"):
        list(packets)


def test_any_byte_but_zero_says_that_a_field_is_present(compiled: Any) -> None:
    flags = np.array([1, 1], dtype=np.uint8)
    expected = b"".join(compiled.Packets(**FITTING | {"fields": field(present=flags)}))
    assert b"".join(compiled.Packets(**FITTING | {"fields": field(present=flags * 7)})) == expected
