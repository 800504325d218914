"""Packets of one rank's tracks, read with the `perfetto` package's messages."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import (
    DebugAnnotation,
    Trace,
    TrackEvent,
)

from tracekit.model.events import ABSENT
from tracekit.render.perfetto import RankTraceWriter
from tracekit.render.slices import Slices

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
