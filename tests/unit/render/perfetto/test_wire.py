from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

from tracekit.render.perfetto.wire import (
    begun_message,
    fixed,
    fixed64,
    message,
    records,
    varint,
    width_of,
    windows,
    woven,
)

UINT64 = st.one_of(st.integers(0, 2**64 - 1), st.integers(0, 63).map(lambda bits: 1 << bits), st.integers(0, 300))
ROWS = st.lists(st.tuples(UINT64, UINT64, UINT64), min_size=1, max_size=30)


@given(ROWS)
def test_protobuf_reads_what_columns_say(rows: list[tuple[int, int, int]]) -> None:
    """GIVEN columns of numbers of any size WHEN encoded at once THEN each message says its row's."""
    times, iids, flows = (np.array([row[i] for row in rows], dtype=np.uint64) for i in range(3))
    # 1 packet; in it 8 timestamp, 11 track_event, 13 sequence_flags; in the event 10 name_iid, 47 flow_ids.
    event = message(11, varint(10, width_of(iids)) + fixed64(47))
    packet = message(1, varint(8, width_of(times)) + event, fixed(13, 300))
    trace = Trace.FromString(records(packet, [times, iids, flows], len(rows)).tobytes())
    assert [(p.timestamp, p.track_event.name_iid, p.track_event.flow_ids[0]) for p in trace.packet] == rows
    assert {p.sequence_flags for p in trace.packet} == {300}


@pytest.mark.parametrize(
    ("largest", "width"), [(0, 1), (127, 1), (128, 2), (1 << 14, 4), (1 << 28, 8), (1 << 56, 9), (1 << 63, 10)]
)
def test_a_column_takes_the_room_of_its_largest_number(largest: int, width: int) -> None:
    assert width_of(np.array([0, largest], dtype=np.uint64)) == width


def test_a_message_longer_than_127_bytes_has_a_longer_length() -> None:
    values = np.array([7, 1 << 40], dtype=np.uint64)
    fields = [varint(8, width_of(values)) for _ in range(50)]
    trace = Trace.FromString(records(message(1, *fields), [values] * 50, 2).tobytes())
    assert [packet.timestamp for packet in trace.packet] == [7, 1 << 40]


@given(st.lists(st.tuples(UINT64, st.integers(0, 300)), min_size=1, max_size=30))
def test_a_message_that_has_been_begun_goes_on_in_the_next_record(rows: list[tuple[int, int]]) -> None:
    """GIVEN packets of which each ends with 0 to 300 categories, a record behind THEN each has its own."""
    times, more = (np.array([row[i] for row in rows], dtype=np.uint64) for i in range(2))
    category = fixed(3, 7).content
    event, event_length = begun_message(11, fixed(9, 1), more * np.uint64(len(category)))
    packet, length = begun_message(1, varint(8, width_of(times)) + event, more * np.uint64(len(category)))
    parts = [(2 * np.arange(len(rows)), records(packet, [length, times, event_length], len(rows)))]
    parts += [
        (np.array([2 * row + 1]), windows(category * 300, int(more[row]) * len(category))[:1])
        for row in np.flatnonzero(more).tolist()
    ]
    trace = Trace.FromString(woven(parts, 2 * len(rows)).tobytes())
    assert [(p.timestamp, len(p.track_event.category_iids)) for p in trace.packet] == rows


@given(st.lists(st.integers(0, 3), max_size=40))
def test_records_of_several_sizes_come_out_in_their_order(kinds: list[int]) -> None:
    """Those of kind 0 are none."""
    parts = []
    for kind in set(kinds) - {0}:
        places = np.flatnonzero(np.array(kinds) == kind)
        text = np.array([f"{kind}" * kind] * len(places), dtype=f"S{kind}")
        parts.append((places, text.view(f"V{kind}")))
    expected = "".join(f"{kind}" * kind for kind in kinds)
    assert woven(parts, len(kinds)).tobytes().decode() == expected
