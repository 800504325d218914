"""Sets of time as sorted, disjoint, half-open intervals of integer nanoseconds.

All arithmetic with lanes uses them: `a | b` union, `a & b` intersection, `a - b` difference, `len_ns` the length.

    a        ######    ####
    b           ######   ####
    a & b       ###      ##
    a - b    ###       ##
    a | b    #########  ######     (touching intervals are merged)

Every operation takes O((n + m) log(n + m)) in numpy, without a Python loop over intervals.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tracekit.model.events import Bool, EventTable, Int64


@dataclass(frozen=True, eq=False)
class Intervals:
    """A set of time.

    The constructor does not check its arguments; `Intervals.union_of` accepts any intervals.

    Attributes:
        start_ns: sorted, int64 [n].
        end_ns: int64 [n]; each is after its start and before the next start.
    """

    start_ns: Int64
    end_ns: Int64

    @classmethod
    def union_of(cls, start_ns: Int64, end_ns: Int64) -> Intervals:
        """Return the union of any intervals int64 [n]; they may be unsorted, overlapping, empty and repeated."""
        is_positive = end_ns > start_ns
        if not is_positive.any():
            return EMPTY
        if not is_positive.all():
            start_ns, end_ns = start_ns[is_positive], end_ns[is_positive]
        order = np.argsort(start_ns, kind="stable")
        start_ns = start_ns[order]
        reach_ns = np.maximum.accumulate(end_ns[order])
        opens = np.empty(len(start_ns), dtype=np.bool_)
        opens[0] = True
        np.greater(start_ns[1:], reach_ns[:-1], out=opens[1:])
        first = np.flatnonzero(opens)
        last = np.append(first[1:], len(start_ns)) - 1
        return cls(start_ns[first], reach_ns[last])

    @classmethod
    def of_events(cls, events: EventTable, rows: Int64 | Bool) -> Intervals:
        """Return the union of the events in `rows`: int64 [k], or a mask [n] over the table."""
        if rows.dtype == np.bool_:
            rows = np.flatnonzero(rows)  # numpy would look for them in each of the columns
        start_ns = events.start_ns[rows]
        return cls.union_of(start_ns, start_ns + events.duration_ns[rows])

    def __len__(self) -> int:
        return len(self.start_ns)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Intervals):
            return NotImplemented
        return np.array_equal(self.start_ns, other.start_ns) and np.array_equal(self.end_ns, other.end_ns)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Intervals({list(zip(self.start_ns.tolist(), self.end_ns.tolist(), strict=True))})"

    @property
    def duration_ns(self) -> Int64:
        """Return the length of each interval, int64 [n]."""
        return self.end_ns - self.start_ns

    @property
    def len_ns(self) -> int:
        """Return the total length, `|x|` of docs/definitions.md."""
        return int(self.duration_ns.sum())

    def __or__(self, other: Intervals) -> Intervals:
        start_ns = np.concatenate((self.start_ns, other.start_ns))
        return Intervals.union_of(start_ns, np.concatenate((self.end_ns, other.end_ns)))

    def __and__(self, other: Intervals) -> Intervals:
        few, many = sorted((self, other), key=len)
        # Each of the few overlaps consecutive ones of the many, which end after its start and start before its end.
        first = np.searchsorted(many.end_ns, few.start_ns, side="right")
        overlaps = np.searchsorted(many.start_ns, few.end_ns, side="left") - first
        of_few = np.repeat(np.arange(len(few)), overlaps)
        of_many = np.arange(len(of_few)) + np.repeat(first - np.cumsum(overlaps) + overlaps, overlaps)
        return Intervals(
            np.maximum(few.start_ns[of_few], many.start_ns[of_many]),
            np.minimum(few.end_ns[of_few], many.end_ns[of_many]),
        )

    def __sub__(self, other: Intervals) -> Intervals:
        if not len(self) or not len(other):
            return self
        return self & other.gaps(int(self.start_ns[0]), int(self.end_ns[-1]))

    def clip(self, start_ns: int, end_ns: int) -> Intervals:
        """Return the part inside one window."""
        first = int(np.searchsorted(self.end_ns, start_ns, side="right"))
        last = int(np.searchsorted(self.start_ns, end_ns, side="left"))
        if first >= last or start_ns >= end_ns:
            return EMPTY
        starts, ends = self.start_ns[first:last].copy(), self.end_ns[first:last].copy()
        starts[0], ends[-1] = max(starts[0], start_ns), min(ends[-1], end_ns)
        return Intervals(starts, ends)

    def gaps(self, start_ns: int, end_ns: int) -> Intervals:
        """Return the part of the window that is not in this set. Computed from the edges, not as a difference of
        lengths.
        """
        if start_ns >= end_ns:
            return EMPTY
        inside = self.clip(start_ns, end_ns)
        starts = np.concatenate((np.array([start_ns], dtype=np.int64), inside.end_ns))
        ends = np.concatenate((inside.start_ns, np.array([end_ns], dtype=np.int64)))
        is_positive = ends > starts
        return Intervals(starts[is_positive], ends[is_positive])

    def covers(self, time_ns: Int64) -> np.ndarray:
        """Return a mask [m] of the times (int64 [m]) that lie inside; starts do, ends do not."""
        position = np.searchsorted(self.start_ns, time_ns, side="right") - 1
        if not len(self):
            return np.zeros(len(time_ns), dtype=np.bool_)
        return (position >= 0) & (time_ns < self.end_ns[np.maximum(position, 0)])

    def covered_ns(self, start_ns: Int64, end_ns: Int64) -> Int64:
        """Return int64 [m]: how much of each window [start_ns, end_ns) lies inside."""
        return self.covered_before(end_ns) - self.covered_before(start_ns)

    def covered_before(self, time_ns: Int64) -> Int64:
        """Return int64 [m]: how much of this set is before each time."""
        if not len(self):
            return np.zeros(len(time_ns), dtype=np.int64)
        index = np.searchsorted(self.start_ns, time_ns, side="right")
        beyond_ns = np.where(index > 0, np.maximum(self.end_ns[np.maximum(index - 1, 0)] - time_ns, 0), 0)
        return np.asarray(self._before_ns[index] - beyond_ns)

    def when_covered(self, amount_ns: Int64) -> Int64:
        """Return int64 [m]: when so much of this set is past; the largest integer if the set is shorter.

        amount_ns: more than 0, int64 [m].
        """
        so_far_ns = self._before_ns[1:]
        index = np.searchsorted(so_far_ns, amount_ns, side="left")
        latest_ns = np.append(self.end_ns - so_far_ns, 0)[index] + amount_ns
        return np.where(index < len(self), latest_ns, np.iinfo(np.int64).max)

    @cached_property
    def _before_ns(self) -> Int64:
        """Return the total length of the intervals before each one, and of all, int64 [n + 1]."""
        return np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(self.duration_ns)))


def beyond_earlier(start_ns: Int64, end_ns: Int64) -> tuple[Int64, Int64]:
    """Return the part of each interval after the ends of all that begin before it, as starts and ends, int64 [n] each.

    A part may be empty. Together the parts are the union of the intervals.
    """
    order = np.argsort(start_ns, kind="stable")
    reach_ns = np.maximum.accumulate(end_ns[order])
    begin_ns = start_ns.copy()
    begin_ns[order[1:]] = np.maximum(start_ns[order[1:]], reach_ns[:-1])
    return begin_ns, np.maximum(end_ns, begin_ns)


EMPTY = Intervals(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
