"""What a page of a merged trace consists of, whatever the format: tracks, slices with arguments, arrows.

A page shows one rank, or the run as a whole. `rank_page` and `run_page` make the slices, and the `TraceWriter` of a
format writes them.

Viewers show the slices of a track as a stack: of two slices either one contains the other, or they do not overlap. Real
traces break that rule: asynchronous annotations, streams, clocks with microsecond steps. So the slices of a thread or
stream are assigned to track rows, on which they nest, and their opens and closes are ordered. Slices that do not fit go
to further track rows, so that all slices are shown, with their true start and duration. If more cross each other than
there may be track rows (`lanes` of `tracekit.limits`), some are left out, and counted.

Intervals are half-open: a slice that starts where another ends follows it. Of slices that start together the longer
contains the shorter, and equal ones nest in the given order. A slice of duration 0 is inside the slices that are open
at its time, and contains nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from tracekit.limits import limits
from tracekit.model.events import ABSENT, Bool, Float64, Int32, Int64
from tracekit.render.palette import Look

RUN_PAGE = "run"
"""Name of the page of the run as a whole."""

ROLES = ("begins", "passes", "ends")
"""What an arrow does in a slice."""

Track = TypeVar("Track")

Unsigned = npt.NDArray[np.uint64]
Rows = Int32 | Int64

MAX_DEPTH = 512
"""The deepest stack that the trace processor keeps on a track. It drops deeper slices (kMaxDepth, slice_tracker.cc)."""

AnyRows = TypeVar("AnyRows", Int32, Int64)

_NEVER_NS = np.iinfo(np.int64).max


@dataclass(frozen=True, kw_only=True, eq=False)
class Argument:
    """One argument of m rows.

    Attributes:
        name: Name of the argument.
        values: Numbers, int64 [m]; if `is_text`, indexes into the slices' `strings`, or `ABSENT`, int32 [m].
        present: Rows that have the argument, bool [m]; None: all.
        is_text: Whether the values are texts.
    """

    name: str
    values: Int64 | Int32
    present: Bool | None = None
    is_text: bool = False

    def known(self, rows: Rows) -> Bool | None:
        """Return which of the rows in `rows`, integers [n], have the argument, bool [n]; None: all."""
        has = None if self.present is None else self.present[rows]
        if self.is_text:
            has_text: Bool = self.values[rows] != ABSENT
            has = has_text if has is None else has & has_text
        return has


@dataclass(frozen=True, kw_only=True, eq=False)
class Flows:
    """Arrows, at most one of them in each of m rows. An arrow joins slices of the same id in order of their starts.

    Attributes:
        ids: Ids of arrows, unique in the trace, uint64 [m]; 0: no arrow.
        role: Whether the arrow begins in a slice, passes it or ends in it, index into `ROLES`, uint8 [m].
    """

    ids: Unsigned
    role: npt.NDArray[np.uint8]


@dataclass(frozen=True, kw_only=True, eq=False)
class Slices:
    """n slices of one track, in any order.

    Times are columns of n slices. All else may be columns of a table of m rows, such as the events of a recording, of
    which `rows` selects those of the track.

    Attributes:
        start_ns: Start since the Unix epoch, int64 [n], >= 0.
        duration_ns: Duration, int64 [n], >= 0.
        name: Index into `strings`, or `ABSENT`, int32 [m].
        category: Index into `strings`, or `ABSENT`, int32 [m].
        strings: All texts.
        arguments: Columns of arguments, of m rows.
        flows: Columns of arrows, of m rows.
        extra_args: Further arguments, as JSON objects (`read.decode.extra_args`): index into `strings`, or `ABSENT`,
            int32 [m]. Few of them are distinct. None: no slice has any.
        rows: Row of each slice, int32 [n]; None: m is n.
        look: What all slices show, for formats that let one choose colours.

    Raises ValueError for columns of different lengths, for a negative time, and for an end beyond int64.
    """

    start_ns: Int64
    duration_ns: Int64
    name: Int32
    category: Int32
    strings: Sequence[str]
    arguments: tuple[Argument, ...] = ()
    flows: tuple[Flows, ...] = ()
    extra_args: Int32 | None = None
    rows: Int32 | None = None
    look: Look | None = None

    def __post_init__(self) -> None:
        times: list[npt.NDArray[Any]] = [self.start_ns, self.duration_ns, *([] if self.rows is None else [self.rows])]
        table: list[npt.NDArray[Any]] = [self.name, self.category]
        table += [] if self.extra_args is None else [self.extra_args]
        table += [argument.values for argument in self.arguments]
        table += [column for flows in self.flows for column in (flows.ids, flows.role)]
        groups = [times, table] if self.rows is not None else [times + table]
        groups += [[each.present, each.values] for each in self.arguments if each.present is not None]
        for columns in groups:
            lengths = {len(column) for column in columns}
            if len(lengths) != 1:
                raise ValueError(f"columns of slices have different lengths: {sorted(lengths)}")
        if min(self.start_ns.min(initial=0), self.duration_ns.min(initial=0)) < 0:
            raise ValueError("a slice has a negative start or duration")
        if np.any(self.duration_ns > np.iinfo(np.int64).max - self.start_ns):
            raise ValueError("a slice ends beyond the range of int64 nanoseconds")

    def rows_of(self, slices: Rows) -> Rows:
        """Return the rows of some slices, given by their indexes."""
        return slices if self.rows is None else self.rows[slices]

    def __len__(self) -> int:
        return len(self.start_ns)

    @staticmethod
    def named(
        names: Sequence[str],
        start_ns: Int64,
        end_ns: Int64,
        *,
        category: str,
        arguments: Sequence[Argument] = (),
        texts: Mapping[str, Sequence[str]] = MappingProxyType({}),
        flows: Sequence[Flows] = (),
    ) -> Slices:
        """Return n slices of one category from their names.

        texts: further arguments by name, n strings each; "" where a slice has none.
        """
        strings = list(dict.fromkeys([category, *names, *(text for column in texts.values() for text in column)]))
        index_of = {text: index for index, text in enumerate(strings)} | {"": ABSENT}
        text_arguments = [
            Argument(name=name, values=_indices(index_of, column), is_text=True) for name, column in texts.items()
        ]
        return Slices(
            start_ns=start_ns,
            duration_ns=end_ns - start_ns,
            name=_indices(index_of, names),
            category=np.full(len(names), index_of[category], dtype=np.int32),
            strings=strings,
            arguments=(*arguments, *text_arguments),
            flows=tuple(flows),
        )


class TraceWriter(Protocol[Track]):
    """Writes one page of a merged trace. A `Track` is a row of the page: slices or values are written on it, or other
    tracks put under it.

    Attributes:
        left_out: Slices so far that crossed others in as many track rows as the limit allows.
    """

    left_out: int

    def add_run_page(self) -> Track:
        """Return the page of the run, named `RUN_PAGE`, under which tracks go."""

    def add_rank_page(self, name: str, *, order: int = 0) -> Track:
        """Add the page of a rank, under which tracks go. Pages of ranks are shown by `order`, after that of the run."""

    def add_track(self, name: str, *, parent: Track, order: int = 0) -> Track:
        """Add a track under a page or a track. Tracks of equal names are not merged."""

    def add_counter(self, name: str, *, unit: str = "", parent: Track, order: int = 0) -> Track:
        """Add a track of numbers over time."""

    def write_slices(self, track: Track, slices: Slices) -> int:
        """Write slices on a track; those that cross others go to further track rows. Return how many that took."""

    def write_counter(self, track: Track, time_ns: Int64, values: Float64) -> None:
        """Write the values of a counter, [n], each of which holds from its time on."""


class Sink(Protocol):
    """A binary stream that a page is written to."""

    def write(self, content: bytes | memoryview, /) -> object: ...


class TraceFormat(Protocol):
    """A format of merged traces. Picklable, as different processes may write the pages."""

    @classmethod
    def begin(cls, first_ns: int, describe: Callable[[int], Mapping[str, str]]) -> TraceFormat:
        """Return the format of a trace whose input begins at `first_ns`, since the Unix epoch.

        describe: returns texts about the trace as a whole, by name, for the time from which its own times count.
        """

    @property
    def base_ns(self) -> int:
        """The time since the Unix epoch from which times in the trace count."""

    @property
    def head(self) -> bytes:
        """Bytes before all pages."""

    @property
    def separator(self) -> bytes:
        """Bytes between pages that are not empty."""

    @property
    def tail(self) -> bytes:
        """Bytes after all pages."""

    def writer(self, stream: Sink, rank_index: int) -> TraceWriter[Any]:
        """Return a writer for the page of the rank with this index in the run's ranks, or of the run, as if the run
        were a rank after the last."""


def _indices(index_of: Mapping[str, int], texts: Sequence[str]) -> Int32:
    """Return the index of each text, int32 [n]."""
    return np.fromiter(map(index_of.__getitem__, texts), dtype=np.int32, count=len(texts))


class FreeTrackRows:
    """Which track rows of a track are free, over several calls that write on it."""

    def __init__(self) -> None:
        self._taken_until_ns: list[int] = []

    def take(self, spans_ns: Iterable[tuple[int, int]]) -> list[int]:
        """Return a different track row for each span, (start, end).

        It is the first one on which no span of an earlier call ends after the start, or a new one.
        """
        free = dict(enumerate(self._taken_until_ns))
        track_rows = []
        for start_ns, end_ns in spans_ns:
            new = len(self._taken_until_ns)
            track_row = next(
                (track_row for track_row, taken_until_ns in free.items() if taken_until_ns <= start_ns), new
            )
            free.pop(track_row, None)
            self._taken_until_ns[track_row : track_row + 1] = [end_ns]
            track_rows.append(track_row)
        return track_rows


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


def track_row_boundaries(start_ns: Int64, duration_ns: Int64, max_depth: int = MAX_DEPTH) -> list[Int32]:
    """Return for each track row of n slices the opens and closes of its slices, in `boundary_order`.

    On every track row slices nest, at most `max_depth` deep. Greedy in order of start: a slice goes to the first track
    row in which it crosses no open slice, so a thread that nests properly needs track row 0 alone. A slice that crosses
    one in each of as many track rows as the limit allows is left out.

    A few numpy passes find the slices that take part in a conflict or surround one. Only these are assigned in a Python
    loop, in O(their number x track rows).
    """
    order = boundary_order(start_ns, duration_ns)
    track_row = _assign(start_ns, duration_ns, order, max_depth)
    return split_track_rows(order, track_row[_row(order)]) if track_row.any() else [order]


def split_track_rows(items: AnyRows, track_row: Int32 | Int64) -> list[AnyRows]:
    """Return the items, integers [n], of each track row from 0 on, in order. `track_row`: integers [n], or ABSENT."""
    by_track_row = np.argsort(track_row, kind="stable")
    ends = np.searchsorted(track_row[by_track_row], np.arange(int(track_row.max(initial=0)) + 1))
    return np.split(items[by_track_row], ends)[1:]


def _row(boundaries: Int32) -> Int32:
    return np.where(boundaries < 0, ~boundaries, boundaries)


def _assign(start: Int64, duration: Int64, order: Int32, max_depth: int) -> Int32:
    track_row = np.zeros(len(start), dtype=np.int32)
    suspect = _misnested(order, len(start), max_depth)
    if not suspect.any():
        return track_row
    end = start + duration
    # A slice that touches no boundary of a suspect crosses nothing and contains no suspect. It can stay in track row 0.
    edges = np.sort(np.concatenate([start[suspect], end[suspect]]))
    involved = np.searchsorted(edges, end, side="right") > np.searchsorted(edges, start, side="left")
    opened = order[order >= 0]
    rows = opened[involved[opened]]
    track_row[rows] = _first_fit(start[rows].tolist(), end[rows].tolist(), max_depth, limits().lanes)
    return track_row


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


def _first_fit(starts: list[int], ends: list[int], max_depth: int, most_track_rows: int) -> list[int]:
    """Return the track row of each slice, or ABSENT where none is left. Slices are in the order in which they open."""
    track_rows: list[int] = []
    open_ends: list[list[int]] = []  # a stack for each track row
    latest_ends: list[int] = []  # that a slice may have to fit into each track row
    closing: list[tuple[int, int]] = []  # ends and track rows of open slices, a heap
    for start, end in zip(starts, ends, strict=True):
        while closing and closing[0][0] <= start:
            _, track_row = heappop(closing)
            open_ends[track_row].pop()
            latest_ends[track_row] = open_ends[track_row][-1] if open_ends[track_row] else _NEVER_NS
        track_row = next((track_row for track_row, latest in enumerate(latest_ends) if end <= latest), len(latest_ends))
        if track_row == most_track_rows:
            track_rows.append(ABSENT)
            continue
        if track_row == len(latest_ends):
            open_ends.append([])
            latest_ends.append(_NEVER_NS)
        open_ends[track_row].append(end)
        latest_ends[track_row] = end if len(open_ends[track_row]) < max_depth else -_NEVER_NS
        heappush(closing, (end, track_row))
        track_rows.append(track_row)
    return track_rows
