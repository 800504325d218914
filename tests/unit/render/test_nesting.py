"""Track rows on which slices nest, and the order in which slices open and close."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.model.events import ABSENT, Int32, Int64
from tracekit.render.slices import MAX_DEPTH, boundary_order, track_row_boundaries

SLICES = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=40)
NESTED = [(0, 100), (1, 10), (2, 3), (20, 30), (20, 30), (50, 0)]


def columns(slices: list[tuple[int, int]]) -> tuple[Int64, Int64]:
    array = np.array(slices, dtype=np.int64).reshape(-1, 2)
    return array[:, 0], array[:, 1]


def track_rows_of(slices: list[tuple[int, int]], max_depth: int = MAX_DEPTH) -> list[int]:
    """Return the track row of each slice; ABSENT for one that is left out."""
    track_rows = [ABSENT] * len(slices)
    for track_row, boundaries in enumerate(track_row_boundaries(*columns(slices), max_depth)):
        for row in boundaries[boundaries >= 0].tolist():
            track_rows[row] = track_row
    return track_rows


def first_fit(slices: list[tuple[int, int]], max_depth: int = MAX_DEPTH) -> list[int]:
    """Return the track rows by first fit over all slices, one by one, as a reference."""
    track_rows: list[list[int]] = []
    answer = [0] * len(slices)
    for row in sorted(range(len(slices)), key=lambda row: (slices[row][0], -slices[row][1])):
        start, end = slices[row][0], sum(slices[row])
        fits = []
        for track_row in track_rows:
            track_row[:] = [other for other in track_row if other > start]
            fits.append(len(track_row) < max_depth and all(end <= other for other in track_row))
        answer[row] = fits.index(True) if True in fits else len(track_rows)
        if answer[row] == len(track_rows):
            track_rows.append([])
        track_rows[answer[row]].append(end)
    return answer


def assert_brackets(boundaries: Int32, slices: list[tuple[int, int]]) -> None:
    """Every slice is opened once and closed once, in order of time, and closes are innermost first."""
    stack: list[int] = []
    times = []
    for boundary in boundaries.tolist():
        if boundary >= 0:
            stack.append(boundary)
            times.append(slices[boundary][0])
        else:
            assert stack.pop() == ~boundary
            times.append(sum(slices[~boundary]))
    assert stack == []
    assert times == sorted(times)


@given(SLICES)
def test_lanes_are_those_of_first_fit(slices: list[tuple[int, int]]) -> None:
    assert track_rows_of(slices) == first_fit(slices)


@given(SLICES, st.integers(1, 4))
def test_lanes_of_limited_depth_are_those_of_first_fit(slices: list[tuple[int, int]], max_depth: int) -> None:
    assert track_rows_of(slices, max_depth) == first_fit(slices, max_depth)


@given(SLICES)
def test_boundaries_of_each_lane_are_brackets(slices: list[tuple[int, int]]) -> None:
    track_rows = track_row_boundaries(*columns(slices))
    assert sorted(row for track_row in track_rows for row in track_row.tolist() if row >= 0) == list(range(len(slices)))
    for track_row in track_rows:
        assert_brackets(track_row, slices)


def test_nested_slices_need_one_lane() -> None:
    assert track_rows_of(NESTED) == [0] * len(NESTED)
    assert boundary_order(*columns(NESTED)).tolist() == [0, 1, 2, ~2, ~1, 3, 4, ~4, ~3, 5, ~5, ~0]


def test_order_at_one_time_is_close_then_open_then_instants() -> None:
    slices = [(5, 0), (5, 2), (0, 5), (5, 5), (2, 3)]
    assert boundary_order(*columns(slices)).tolist() == [2, 4, ~4, ~2, 3, 1, 0, ~0, ~1, ~3]


def test_only_the_later_of_two_crossing_slices_moves() -> None:
    slices = [(0, 1000), (10, 20), (15, 500), (40, 10), (41, 1), (600, 10)]
    assert track_rows_of(slices) == [0, 0, 1, 0, 0, 0]


def test_touching_slices_do_not_cross() -> None:
    assert track_rows_of([(0, 5), (5, 5), (10, 5)]) == [0, 0, 0]


@pytest.mark.parametrize("depth", [MAX_DEPTH, MAX_DEPTH + 1, 3 * MAX_DEPTH])
def test_deep_stacks_continue_in_the_next_lane(depth: int) -> None:
    slices = [(i, 10_000 - 2 * i) for i in range(depth)]
    assert track_rows_of(slices) == [i // MAX_DEPTH for i in range(depth)]


@pytest.mark.parametrize("track_rows", [1, 3, 8])
def test_slices_that_cross_in_every_track_row_are_left_out(monkeypatch: pytest.MonkeyPatch, track_rows: int) -> None:
    """GIVEN eight slices that all cross WHEN there may be fewer track rows THEN the first have one each."""
    monkeypatch.setenv("TRACEKIT_LIMITS", f"lanes={track_rows}")
    slices = [*((k, 10) for k in range(8)), (20, 1)]
    assert track_rows_of(slices) == [k if k < track_rows else -1 for k in range(8)] + [0]
    shown = [[row for row in track_row.tolist() if row >= 0] for track_row in track_row_boundaries(*columns(slices))]
    assert shown == [[0, 8], *([k] for k in range(1, track_rows))]
