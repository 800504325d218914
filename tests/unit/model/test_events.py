"""Masks of an event table agree with a check event by event."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tracekit.model.events import ABSENT, CollectiveArguments, EventTable, Track
from tracekit.read.decode.table import COLLECTIVE_NUMBERS

NAMES = ("mm", "nccl:all_reduce", "nccl:broadcast", "kernel", "cpu_op")
TRACKS = 3
Row = tuple[int, int, int, int, int, int]

# Few values, so that names, tracks and times repeat; -1 means not recorded.
ROWS: st.SearchStrategy[list[Row]] = st.lists(
    st.tuples(
        st.integers(-1, len(NAMES) - 1),  # name
        st.integers(-1, len(NAMES) - 1),  # category
        st.integers(0, TRACKS - 1),
        st.integers(0, 6),  # start
        st.integers(0, 2),  # duration
        st.integers(-1, 1),  # correlation and shape
    ),
    max_size=20,
)
quick = settings(max_examples=150, deadline=None)


def table(rows: list[Row], strings: tuple[str, ...] = NAMES) -> EventTable:
    columns = np.array(rows, dtype=np.int64).reshape(-1, 6).T
    name, category, track = columns[:3].astype(np.int32)
    no_numbers, no_text = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int32)
    return EventTable(
        strings=list(strings),
        tracks=[Track(pid=1, tid=tid) for tid in range(TRACKS)],
        name=name,
        category=category,
        track=track,
        start_ns=columns[3],
        duration_ns=columns[4],
        correlation=columns[5],
        external_id=columns[5],
        sequence_number=columns[5],
        forward_thread=columns[5],
        shape=columns[5],
        collective_arguments=CollectiveArguments(
            **dict.fromkeys(("row", *COLLECTIVE_NUMBERS), no_numbers),
            **dict.fromkeys(("collective", "dtype", "group_name", "group_description", "group_ranks"), no_text),
            **dict.fromkeys(("input_shapes", "input_types", "concrete_inputs"), no_text),
        ),
    )


def text(number: int) -> str | None:
    return None if number == ABSENT else NAMES[number]


@quick
@given(ROWS, st.sampled_from([str.isalpha, lambda name: name.startswith("nccl:"), "mm".__eq__, "other".__eq__]))
def test_events_are_found_by_their_name(rows: list[Row], predicate: Callable[[str], bool]) -> None:
    actual = table(rows).named(predicate)

    assert actual.tolist() == [text(row[0]) is not None and predicate(NAMES[row[0]]) for row in rows]


def test_names_beyond_16_bits_are_distinguished() -> None:
    strings = tuple(str(i) for i in range(70_000))
    events = table([(number, 0, 0, 0, 0, 0) for number in (69_999, 69_999 - 65_536, 69_999)], strings)

    assert events.named("69999".__eq__).tolist() == [True, False, True]


@quick
@given(ROWS, st.sets(st.sampled_from([*NAMES, "other"])))
def test_events_are_found_by_their_category(rows: list[Row], categories: set[str]) -> None:
    actual = table(rows).in_category(*categories)

    assert actual.tolist() == [text(row[1]) in categories for row in rows]


@quick
@given(ROWS, st.sets(st.integers(0, TRACKS - 1)))
def test_events_are_found_by_their_track_and_tracks_by_their_events(rows: list[Row], tracks: set[int]) -> None:
    events = table(rows)
    actual = events.on_tracks(np.array(sorted(tracks), dtype=np.int64))

    assert actual.tolist() == [row[2] in tracks for row in rows]
    assert events.tracks_of(actual).tolist() == sorted({row[2] for row in rows} & tracks)
    assert events.tracks_of(np.flatnonzero(actual)).tolist() == events.tracks_of(actual).tolist()


@quick
@given(ROWS, st.data())
def test_duplicates_are_removed_and_rows_are_in_order_of_time(rows: list[Row], data: st.DataObject) -> None:
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows))), dtype=np.bool_)
    events = table(rows)

    def key(row: int) -> tuple[int, ...]:
        name, _, track, start, duration, correlation = rows[row]
        return (start, track, name, duration, correlation)

    first = {key(row): row for row in reversed(np.flatnonzero(mask).tolist())}
    with_id = {each[:-1] for each in first if each[-1] != ABSENT}
    expected = [each for each in sorted(first) if each[-1] != ABSENT or each[:-1] not in with_id]
    assert events.each_once(mask).tolist() == [first[each] for each in expected]
