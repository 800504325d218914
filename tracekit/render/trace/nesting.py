"""Intervals of one thread or stream -> lanes in which they nest properly, and the order in which they open and close.

Perfetto's slices form a stack: of two slices on a track one contains the other or they do not overlap ("laminar").
Real traces break that: asynchronous annotations, streams, clocks with microsecond steps. Slices that do not fit are
moved to further lanes, so that all of them are shown, with their true start and duration.

Intervals are half-open: a slice that starts where another ends follows it. Of slices that start together the longer
contains the shorter, and equal ones nest in the order given. A slice of duration 0 is inside what is open at
its time, and contains nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tracekit.model.events import Bool, Int32, Int64

__all__ = ["MAX_DEPTH", "FreeLanes", "assign_lanes", "boundary_order", "lane_boundaries", "opening_order"]

MAX_DEPTH = 512
"""Open slices that the trace processor keeps on one track; deeper ones it drops (kMaxDepth in slice_tracker.cc)."""


class FreeLanes:
    """The lanes of one track over several calls that write on it."""

    def __init__(self) -> None:
        self._taken_until_ns: list[int] = []

    def take(self, spans_ns: Iterable[tuple[int, int]]) -> list[int]:
        """A lane for each of the starts and ends of one call, none twice: the first on which nothing of earlier calls
        ends after the start, a new one if need be."""
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
    """Rows of n slices in the order in which they open, int32 [n]: by time, at one time the longest first."""
    by_start = np.argsort(start_ns, kind="stable")
    same = np.diff(start_ns[by_start]) == 0
    # Only rows that share a start need the second key; sorting all of them by two keys takes several times as long.
    tied = np.flatnonzero(np.concatenate([same, [False]]) | np.concatenate([[False], same]))
    rows = by_start[tied]
    by_start[tied] = rows[np.lexsort((-duration_ns[rows], start_ns[rows]))]
    return by_start.astype(np.int32)


def boundary_order(start_ns: Int64, duration_ns: Int64) -> Int32:
    """Opens and closes of n slices in the order in which they must be written: int32 [2n], row to open, ~row to close.

    By time; at one time first what closes (innermost first), then what opens (longest first), then the slices of
    duration 0, each closed at once. O(n log n), and close to O(n) for rows that are nearly in time order.
    """
    outer_first = opening_order(start_ns, duration_ns)
    start, duration = start_ns[outer_first], duration_ns[outer_first]
    instant = duration == 0
    closing = np.flatnonzero(~instant)[::-1]  # equal ends: what opened last closes first
    end = (start + duration)[closing]
    by_end = np.argsort(end, kind="stable")
    # Two sorted runs, the ends first: the stable sort is a merge in which ends win ties.
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
    """The lane of each of n slices, int32 [n]: in every lane slices nest properly, at most `max_depth` deep.

    Greedy in order of start: a slice goes to the first lane in which it crosses no open slice, so lane 0 is all that
    a properly nested thread needs. A few numpy passes find the slices that take part in a conflict or
    surround one; only these are swept in Python, in O(their number x lanes).
    """
    return _assign(start_ns, duration_ns, boundary_order(start_ns, duration_ns), max_depth)


def lane_boundaries(start_ns: Int64, duration_ns: Int64, max_depth: int = MAX_DEPTH) -> list[Int32]:
    """For each lane of `assign_lanes` its opens and closes, as `boundary_order` gives them for the lane's slices."""
    order = boundary_order(start_ns, duration_ns)
    lane = _assign(start_ns, duration_ns, order, max_depth)
    last = int(lane.max(initial=0))
    if last == 0:
        return [order]
    lane_of_boundary = lane[_row(order)]
    by_lane = np.argsort(lane_of_boundary, kind="stable")
    return np.split(order[by_lane], np.searchsorted(lane_of_boundary[by_lane], np.arange(1, last + 1)))


def _row(boundaries: Int32) -> Int32:
    return np.where(boundaries < 0, ~boundaries, boundaries)


def _assign(start: Int64, duration: Int64, order: Int32, max_depth: int) -> Int32:
    lane = np.zeros(len(start), dtype=np.int32)
    suspect = _misnested(order, len(start), max_depth)
    if not suspect.any():
        return lane
    end = start + duration
    # A slice that touches no boundary of a suspect crosses nothing, and is no ancestor of one: it can stay in lane 0.
    edges = np.sort(np.concatenate([start[suspect], end[suspect]]))
    involved = np.searchsorted(edges, end, side="right") > np.searchsorted(edges, start, side="left")
    opened = order[order >= 0]
    rows = opened[involved[opened]]
    lane[rows] = _first_fit(start[rows].tolist(), end[rows].tolist(), max_depth)
    return lane


def _misnested(order: Int32, slices: int, max_depth: int) -> Bool:
    """Slices that are not closed by their own close when opens and closes are read as brackets, or lie too deep.

    Brackets match whatever slice they belong to. Slices matched with themselves never cross each other: matched
    brackets do not. So every crossing pair has at least one slice in the answer.
    """
    opens = order >= 0
    depth = np.cumsum(np.where(opens, 1, -1), dtype=np.int32) - opens
    # On each level opens and closes alternate, each open followed by its match. A narrow type sorts by radix.
    deepest = int(depth.max(initial=0))
    by_level = np.argsort(depth.astype(np.min_scalar_type(deepest)), kind="stable")
    pairs = _row(order[by_level]).reshape(-1, 2)
    suspect = np.zeros(slices, dtype=np.bool_)
    suspect[pairs[pairs[:, 0] != pairs[:, 1]]] = True
    if deepest >= max_depth:
        suspect[order[opens & (depth >= max_depth)]] = True
    return suspect


def _first_fit(starts: list[int], ends: list[int], max_depth: int) -> list[int]:
    """Lane of each slice, slices in the order in which they open."""
    lanes: list[int] = []
    open_ends: list[list[int]] = []  # a stack a lane
    for start, end in zip(starts, ends, strict=True):
        for lane, stack in enumerate(open_ends):
            while stack and stack[-1] <= start:
                stack.pop()
            if len(stack) < max_depth and (not stack or end <= stack[-1]):
                stack.append(end)
                lanes.append(lane)
                break
        else:
            lanes.append(len(open_ends))
            open_ends.append([end])
    return lanes
