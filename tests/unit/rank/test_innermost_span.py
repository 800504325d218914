"""The innermost span around a moment, on the moment's thread."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.model.events import ABSENT, CollectiveArguments, EventTable, Track
from tracekit.rank.phases import innermost_span, outermost_first
from tracekit.read.decode.table import COLLECTIVE_NUMBERS


def table(spans: list[tuple[int, int, int]]) -> EventTable:
    """Return an event table of spans (track, start, end)."""
    n = len(spans)
    absent, no_text = np.full(n, ABSENT, dtype=np.int64), np.empty(0, dtype=np.int32)
    track, start, end = (np.array(column, dtype=np.int64) for column in zip(*spans, strict=True))
    return EventTable(
        strings=["span"],
        tracks=[Track(pid=1, tid=tid) for tid in range(3)],
        name=np.zeros(n, dtype=np.int32),
        category=np.zeros(n, dtype=np.int32),
        track=track.astype(np.int32),
        start_ns=start,
        duration_ns=end - start,
        correlation=absent,
        external_id=absent,
        sequence_number=absent,
        forward_thread=absent,
        shape=absent,
        collective_arguments=CollectiveArguments(
            **dict.fromkeys(("row", *COLLECTIVE_NUMBERS), np.empty(0, np.int64)),
            **dict.fromkeys(("collective", "dtype", "group_name", "group_description", "group_ranks"), no_text),
            **dict.fromkeys(("input_shapes", "input_types", "concrete_inputs"), no_text),
        ),
    )


@pytest.mark.parametrize(
    ("track", "time", "expected"),
    [(0, 5, 0), (0, 12, 1), (0, 15, 2), (0, 20, 1), (0, 35, 0), (0, 100, ABSENT), (1, 5, ABSENT), (1, 15, 3)],
)
def test_the_innermost_open_span_is_found(track: int, time: int, expected: int) -> None:
    events = table([(0, 0, 100), (0, 10, 30), (0, 14, 20), (1, 15, 16)])

    actual = innermost_span(events, np.arange(4), np.array([track]), np.array([time]))

    assert actual.tolist() == [expected]


@st.composite
def nested(draw: st.DrawFn) -> list[tuple[int, int, int]]:
    """Spans on two tracks that are nested or disjoint."""
    spans: list[tuple[int, int, int]] = []

    def fill(track: int, start: int, end: int, depth: int) -> None:
        at = start
        while depth and at < end and draw(st.booleans()):
            begin = draw(st.integers(at, end - 1))
            stop = draw(st.integers(begin + 1, end))
            spans.append((track, begin, stop))
            fill(track, begin, stop, depth - 1)
            at = stop

    fill(0, 0, 40, 3)
    fill(1, 0, 40, 3)
    return spans


@given(nested(), st.lists(st.tuples(st.integers(0, 1), st.integers(0, 41)), min_size=1))
def test_the_result_equals_a_search_over_all_spans(
    spans: list[tuple[int, int, int]], moments: list[tuple[int, int]]
) -> None:
    if not spans:
        return
    events = table(spans)
    track, time = (np.array(column, dtype=np.int64) for column in zip(*moments, strict=True))

    actual = innermost_span(events, np.arange(len(spans)), track, time)

    for (where, when), row in zip(moments, actual.tolist(), strict=True):
        open_lengths = [(end - start) for on, start, end in spans if on == where and start <= when < end]
        assert (spans[row][2] - spans[row][1] if row != ABSENT else None) == (
            min(open_lengths) if open_lengths else None
        )


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([(0, 30, 40), (0, 10, 20), (0, 0, 50)], [2, 1, 0]),
        ([(0, 10, 20), (0, 10, 50), (0, 0, 5)], [2, 1, 0]),
    ],
    ids=["starts that differ", "one start"],
)
def test_spans_are_in_order_of_start_and_the_outer_one_of_one_start_is_first(
    spans: list[tuple[int, int, int]], expected: list[int]
) -> None:
    assert outermost_first(table(spans), np.arange(len(spans))).tolist() == expected
