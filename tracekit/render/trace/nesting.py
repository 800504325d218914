"""Assign the slices of a thread or stream to lanes on which they nest, and order their opens and closes.

Perfetto's slices form a stack: of two slices on a track either one contains the other, or they do not overlap. Real
traces break that rule: asynchronous annotations, streams, clocks with microsecond steps. Slices that do not fit go to
further lanes, so that all slices are shown, with their true start and duration. Only where more cross each other than
there may be lanes, some are left out, and counted.

Intervals are half-open: a slice that starts where another ends follows it. Of slices that start together the longer
contains the shorter, and equal ones nest in the given order. A slice of duration 0 is inside the slices that are open
at its time, and contains nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import TypeVar

import numpy as np

from tracekit.limits import limits
from tracekit.model.events import ABSENT, Bool, Int32, Int64

__all__ = [
    "MAX_DEPTH",
    "FreeLanes",
    "assign_lanes",
    "boundary_order",
    "lane_boundaries",
    "opening_order",
    "split_lanes",
]

MAX_DEPTH = 512
"""The deepest stack that the trace processor keeps on a track. It drops deeper slices (kMaxDepth, slice_tracker.cc)."""

Rows = TypeVar("Rows", Int32, Int64)

_NEVER_NS = np.iinfo(np.int64).max


class FreeLanes:
    """Which lanes of a track are free, over several calls that write on it."""

    def __init__(self) -> None:
        self._taken_until_ns: list[int] = []

    def take(self, spans_ns: Iterable[tuple[int, int]]) -> list[int]:
        """Return a different lane for each span, (start, end): the first lane on which no span of an earlier call ends
        after the start, or a new lane."""
        free = dict(enumerate(self._taken_until_ns))
        lanes = []
        for start_ns, end_ns in spans_ns:
            new = len(self._taken_until_ns)
            lane = next((lane for lane, taken_until_ns in free.items() if taken_until_ns <= start_ns), new)
            free.pop(lane, None)
            self._taken_until_ns[lane : lane + 1] = [end_ns]
            lanes.append(lane)
        return lanes


def opening_order(start_ns: Int64, duration_ns: Int64) -> Int32:
    """Return n slices in the order in which they open, int32 [n]: by start, and the longest first of one start."""
    by_start = np.argsort(start_ns, kind="stable")
    same = np.diff(start_ns[by_start]) == 0
    # Only slices that share a start need the second key. Sorting all by two keys takes several times as long.
    tied = np.flatnonzero(np.concatenate([same, [False]]) | np.concatenate([[False], same]))
    rows = by_start[tied]
    by_start[tied] = rows[np.lexsort((-duration_ns[rows], start_ns[rows]))]
    return by_start.astype(np.int32)


def boundary_order(start_ns: Int64, duration_ns: Int64) -> Int32:
    """Return opens and closes of n slices in writing order, int32 [2n]: index of a slice to open, ~index to close.

    They are in order of time. At one time closes come first (innermost first), then opens (longest first), then slices
    of duration 0, each closed at once. O(n log n), and close to O(n) for slices that are nearly in order of time.
    """
    outer_first = opening_order(start_ns, duration_ns)
    start, duration = start_ns[outer_first], duration_ns[outer_first]
    instant = duration == 0
    closing = np.flatnonzero(~instant)[::-1]  # of equal ends, the slice that opened last closes first
    end = (start + duration)[closing]
    by_end = np.argsort(end, kind="stable")
    # Ends come before starts in the array, and both are sorted: the stable sort merges them, and ends win ties.
    merged = np.argsort(np.concatenate([end[by_end], start]), kind="stable")
    rows = np.concatenate([~outer_first[closing[by_end]], outer_first])[merged]
    if instant.any():
        is_instant = np.concatenate([np.zeros(len(closing), dtype=np.bool_), instant])[merged]
        first = np.arange(len(rows)) + np.cumsum(is_instant) - is_instant
        rows = np.repeat(rows, 1 + is_instant)
        second = first[is_instant] + 1
        rows[second] = ~rows[second]
    return rows


def assign_lanes(start_ns: Int64, duration_ns: Int64, max_depth: int = MAX_DEPTH) -> Int32:
    """Return the lane of each of n slices, int32 [n]. On every lane slices nest, at most `max_depth` deep.

    Greedy in order of start: a slice goes to the first lane in which it crosses no open slice, so a thread that nests
    properly needs lane 0 alone. ABSENT: it crosses a slice in each of as many lanes as the limit allows.

    A few numpy passes find the slices that take part in a conflict or surround one. Only these are assigned in a Python
    loop, in O(their number x lanes).
    """
    return _assign(start_ns, duration_ns, boundary_order(start_ns, duration_ns), max_depth)


def lane_boundaries(start_ns: Int64, duration_ns: Int64, max_depth: int = MAX_DEPTH) -> list[Int32]:
    """Return for each lane of `assign_lanes` the opens and closes of its slices, in `boundary_order`.

    Slices without a lane are left out.
    """
    order = boundary_order(start_ns, duration_ns)
    lane = _assign(start_ns, duration_ns, order, max_depth)
    return split_lanes(order, lane[_row(order)]) if lane.any() else [order]


def split_lanes(items: Rows, lane: Int32 | Int64) -> list[Rows]:
    """Return the items, integers [n], of each lane, from 0 on, in their order. `lane`: integers [n], or ABSENT."""
    by_lane = np.argsort(lane, kind="stable")
    ends = np.searchsorted(lane[by_lane], np.arange(int(lane.max(initial=0)) + 1))
    return np.split(items[by_lane], ends)[1:]


def _row(boundaries: Int32) -> Int32:
    return np.where(boundaries < 0, ~boundaries, boundaries)


def _assign(start: Int64, duration: Int64, order: Int32, max_depth: int) -> Int32:
    lane = np.zeros(len(start), dtype=np.int32)
    suspect = _misnested(order, len(start), max_depth)
    if not suspect.any():
        return lane
    end = start + duration
    # A slice that touches no boundary of a suspect crosses nothing and contains no suspect. It can stay in lane 0.
    edges = np.sort(np.concatenate([start[suspect], end[suspect]]))
    involved = np.searchsorted(edges, end, side="right") > np.searchsorted(edges, start, side="left")
    opened = order[order >= 0]
    rows = opened[involved[opened]]
    lane[rows] = _first_fit(start[rows].tolist(), end[rows].tolist(), max_depth, limits().lanes)
    return lane


def _misnested(order: Int32, slices: int, max_depth: int) -> Bool:
    """Return the slices, bool [slices], that are too deep or whose open does not match their own close.

    Opens and closes are matched like brackets, whichever slice they belong to. Matched brackets never cross. So two
    slices can only cross if at least one of them is matched with another slice's boundary.
    """
    opens = order >= 0
    depth = np.cumsum(np.where(opens, 1, -1), dtype=np.int32) - opens
    # At each depth opens and closes alternate, each open followed by its match. numpy sorts a narrow type by radix.
    deepest = int(depth.max(initial=0))
    by_level = np.argsort(depth.astype(np.min_scalar_type(deepest)), kind="stable")
    pairs = _row(order[by_level]).reshape(-1, 2)
    suspect = np.zeros(slices, dtype=np.bool_)
    suspect[pairs[pairs[:, 0] != pairs[:, 1]]] = True
    if deepest >= max_depth:
        suspect[order[opens & (depth >= max_depth)]] = True
    return suspect


def _first_fit(starts: list[int], ends: list[int], max_depth: int, max_lanes: int) -> list[int]:
    """Return the lane of each slice, or ABSENT where none is left. Slices are in the order in which they open."""
    lanes: list[int] = []
    open_ends: list[list[int]] = []  # a stack for each lane
    latest_ends: list[int] = []  # that a slice may have to fit into each lane
    closing: list[tuple[int, int]] = []  # ends and lanes of open slices, a heap
    for start, end in zip(starts, ends, strict=True):
        while closing and closing[0][0] <= start:
            _, lane = heappop(closing)
            open_ends[lane].pop()
            latest_ends[lane] = open_ends[lane][-1] if open_ends[lane] else _NEVER_NS
        lane = next((lane for lane, latest in enumerate(latest_ends) if end <= latest), len(latest_ends))
        if lane == max_lanes:
            lanes.append(ABSENT)
            continue
        if lane == len(latest_ends):
            open_ends.append([])
            latest_ends.append(_NEVER_NS)
        open_ends[lane].append(end)
        latest_ends[lane] = end if len(open_ends[lane]) < max_depth else -_NEVER_NS
        heappush(closing, (end, lane))
        lanes.append(lane)
    return lanes
