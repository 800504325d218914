"""Lanes on which slices nest, and the order in which slices open and close."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.model.events import ABSENT, Int32, Int64
from tracekit.render.slices import MAX_DEPTH, boundary_order, lane_boundaries

SLICES = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=40)
NESTED = [(0, 100), (1, 10), (2, 3), (20, 30), (20, 30), (50, 0)]


def columns(slices: list[tuple[int, int]]) -> tuple[Int64, Int64]:
    array = np.array(slices, dtype=np.int64).reshape(-1, 2)
    return array[:, 0], array[:, 1]


def lanes_of(slices: list[tuple[int, int]], max_depth: int = MAX_DEPTH) -> list[int]:
    """Return the lane of each slice; ABSENT for one that is left out."""
    lanes = [ABSENT] * len(slices)
    for lane, boundaries in enumerate(lane_boundaries(*columns(slices), max_depth)):
        for row in boundaries[boundaries >= 0].tolist():
            lanes[row] = lane
    return lanes


def first_fit(slices: list[tuple[int, int]], max_depth: int = MAX_DEPTH) -> list[int]:
    """Return the lanes by first fit over all slices, one by one, as a reference."""
    lanes: list[list[int]] = []
    answer = [0] * len(slices)
    for row in sorted(range(len(slices)), key=lambda row: (slices[row][0], -slices[row][1])):
        start, end = slices[row][0], sum(slices[row])
        fits = []
        for lane in lanes:
            lane[:] = [other for other in lane if other > start]
            fits.append(len(lane) < max_depth and all(end <= other for other in lane))
        answer[row] = fits.index(True) if True in fits else len(lanes)
        if answer[row] == len(lanes):
            lanes.append([])
        lanes[answer[row]].append(end)
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
    assert lanes_of(slices) == first_fit(slices)


@given(SLICES, st.integers(1, 4))
def test_lanes_of_limited_depth_are_those_of_first_fit(slices: list[tuple[int, int]], max_depth: int) -> None:
    assert lanes_of(slices, max_depth) == first_fit(slices, max_depth)


@given(SLICES)
def test_boundaries_of_each_lane_are_brackets(slices: list[tuple[int, int]]) -> None:
    lanes = lane_boundaries(*columns(slices))
    assert sorted(row for lane in lanes for row in lane.tolist() if row >= 0) == list(range(len(slices)))
    for lane in lanes:
        assert_brackets(lane, slices)


def test_nested_slices_need_one_lane() -> None:
    assert lanes_of(NESTED) == [0] * len(NESTED)
    assert boundary_order(*columns(NESTED)).tolist() == [0, 1, 2, ~2, ~1, 3, 4, ~4, ~3, 5, ~5, ~0]


def test_order_at_one_time_is_close_then_open_then_instants() -> None:
    slices = [(5, 0), (5, 2), (0, 5), (5, 5), (2, 3)]
    assert boundary_order(*columns(slices)).tolist() == [2, 4, ~4, ~2, 3, 1, 0, ~0, ~1, ~3]


def test_only_the_later_of_two_crossing_slices_moves() -> None:
    slices = [(0, 1000), (10, 20), (15, 500), (40, 10), (41, 1), (600, 10)]
    assert lanes_of(slices) == [0, 0, 1, 0, 0, 0]


def test_touching_slices_do_not_cross() -> None:
    assert lanes_of([(0, 5), (5, 5), (10, 5)]) == [0, 0, 0]


@pytest.mark.parametrize("depth", [MAX_DEPTH, MAX_DEPTH + 1, 3 * MAX_DEPTH])
def test_deep_stacks_continue_in_the_next_lane(depth: int) -> None:
    slices = [(i, 10_000 - 2 * i) for i in range(depth)]
    assert lanes_of(slices) == [i // MAX_DEPTH for i in range(depth)]


@pytest.mark.parametrize("lanes", [1, 3, 8])
def test_slices_that_cross_in_every_lane_are_left_out(monkeypatch: pytest.MonkeyPatch, lanes: int) -> None:
    """GIVEN eight slices that all cross WHEN there may be fewer lanes THEN the first have one each."""
    monkeypatch.setenv("TRACEKIT_LIMITS", f"lanes={lanes}")
    slices = [*((k, 10) for k in range(8)), (20, 1)]
    assert lanes_of(slices) == [k if k < lanes else -1 for k in range(8)] + [0]
    shown = [[row for row in lane.tolist() if row >= 0] for lane in lane_boundaries(*columns(slices))]
    assert shown == [[0, 8], *([k] for k in range(1, lanes))]
