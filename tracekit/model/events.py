"""One rank's trace as columns: what every decoder returns and every per-rank pass reads.

A slice is a complete event (`ph` X, or a B/E pair): it has a start and a duration. Text is interned: a column of text
holds int32 indexes into `EventTable.strings`, or `ABSENT`. Times are int64 nanoseconds of the rank's wall clock
(`baseTimeNanoseconds + ts`). Rows are in file order. Both decoders give the same table, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tracekit.model.metadata import CaptureMetadata
from tracekit.model.notes import Note

ABSENT = -1
"""In any integer column: the event does not say."""

_FEW = 4

Int64 = npt.NDArray[np.int64]
Int32 = npt.NDArray[np.int32]
Bool = npt.NDArray[np.bool_]

__all__ = [
    "ABSENT",
    "Bool",
    "CollectiveArguments",
    "DecodedTrace",
    "EventTable",
    "Int32",
    "Int64",
    "MemoryRecords",
    "OperatorArguments",
    "ProcessGroup",
    "TraceHeader",
    "Track",
]


@dataclass(frozen=True, kw_only=True)
class Track:
    """A (pid, tid) pair: a host thread, or a stream of a device. Ids are as in the file; some tools write text."""

    pid: int | str
    tid: int | str
    process_name: str = ""
    thread_name: str = ""


@dataclass(frozen=True, kw_only=True)
class CollectiveArguments:
    """Arguments of communication events, one row an event that has any; `row` points into the event table.

    `collective`, `dtype`, `group_*`, `input_shapes`, `input_types`, `concrete_inputs` are interned text (the last three
    as the JSON they were written in), the others int64; `ABSENT` where the event does not say.
    """

    row: Int64
    collective: Int32
    dtype: Int32
    in_elements: Int64
    out_elements: Int64
    group_size: Int64
    group_name: Int32
    group_description: Int32
    group_ranks: Int32
    sequence: Int64
    input_shapes: Int32
    input_types: Int32
    concrete_inputs: Int32


def _no_rows() -> Int64:
    return np.empty(0, dtype=np.int64)


def _no_text() -> Int32:
    return np.empty(0, dtype=np.int32)


@dataclass(frozen=True, kw_only=True)
class OperatorArguments:
    """Inputs of the operators in `model.operators.MULTIPLYING`, one row an event; `row` points into the event table.

    The others are interned text, the JSON they were written in; `ABSENT` where the event does not say.
    """

    row: Int64 = field(default_factory=_no_rows)
    input_shapes: Int32 = field(default_factory=_no_text)
    input_types: Int32 = field(default_factory=_no_text)
    concrete_inputs: Int32 = field(default_factory=_no_text)


@dataclass(frozen=True, kw_only=True)
class MemoryRecords:
    """What allocators told the profiler (`[memory]`, with `profile_memory`): a row an allocation or a free, n in the
    order of the file; int64 [n] each.

    time_ns: as starts of events. device_type: a number of c10::DeviceType (0: CPU). device_id: `ABSENT` for the CPU.
    change_bytes: what was allocated, or freed where it is negative; always known. allocated_bytes, reserved_bytes: what
    the allocator says that it holds of the device from then on, in tensors and in all. All others: `ABSENT` where
    the event does not say.
    """

    time_ns: Int64 = field(default_factory=_no_rows)
    device_type: Int64 = field(default_factory=_no_rows)
    device_id: Int64 = field(default_factory=_no_rows)
    change_bytes: Int64 = field(default_factory=_no_rows)
    allocated_bytes: Int64 = field(default_factory=_no_rows)
    reserved_bytes: Int64 = field(default_factory=_no_rows)

    def __len__(self) -> int:
        return len(self.time_ns)


@dataclass(frozen=True, kw_only=True)
class EventTable:
    """All slices of one trace file, n rows.

    name, category: int32 [n], interned. track: int32 [n], index into `tracks`. start_ns, duration_ns: int64 [n].
    correlation (device event to its launch), external_id (device event to its operator), sequence_number and
    forward_thread (backward operator to its forward): int64 [n] or `ABSENT`. shape: int64 [n], a hash of the shapes of
    an operator's inputs or of a kernel's grid, the same for the same shapes in every process, or `ABSENT`. extra_args:
    interned, the JSON object of all arguments but ids and counters (`read.decode.extra_args`): int32 [n] or `ABSENT`;
    [0] where they were not asked for.
    """

    strings: list[str]
    tracks: list[Track]
    name: Int32
    category: Int32
    track: Int32
    start_ns: Int64
    duration_ns: Int64
    correlation: Int64
    external_id: Int64
    sequence_number: Int64
    forward_thread: Int64
    shape: Int64
    extra_args: Int32 = field(default_factory=_no_text)
    collective_arguments: CollectiveArguments
    operator_arguments: OperatorArguments = field(default_factory=OperatorArguments)
    memory: MemoryRecords = field(default_factory=MemoryRecords)
    other_phases: dict[str, int] = field(default_factory=dict)
    """How many events of each other phase (flows, counters, instants, metadata) the file holds; not those in `memory`.
    """

    def __len__(self) -> int:
        return len(self.start_ns)

    @cached_property
    def end_ns(self) -> Int64:
        return self.start_ns + self.duration_ns

    @property
    def categories(self) -> frozenset[str]:
        """All that events have."""
        count = np.bincount(self.category + 1, minlength=len(self.strings) + 1)  # ABSENT first
        return frozenset(self.strings[index] for index in np.flatnonzero(count[1:]).tolist())

    def in_category(self, *categories: str) -> Bool:
        """Mask [n], not to be written to: events of any of these categories."""
        if categories not in self._in_category:
            ids = [i for i, text in enumerate(self.strings) if text in categories]
            self._in_category[categories] = mask = _one_of(self.category, ids, len(self.strings))
            mask.setflags(write=False)
        return self._in_category[categories]

    def named(self, predicate: Callable[[str], bool]) -> Bool:
        """Mask [n]: events whose name satisfies `predicate(name)`, which is asked once a name and not once an event."""
        mask = np.zeros(len(self), dtype=np.bool_)
        for name, rows in self._rows_of_names.items():
            if predicate(self.strings[name]):
                mask[rows] = True
        return mask

    def on_tracks(self, tracks: Int64) -> Bool:
        """Mask [n]: events on any of these tracks."""
        return _one_of(self.track, tracks, len(self.tracks))

    def tracks_of(self, rows: Int64 | Bool) -> Int64:
        """The tracks of the events in `rows`: int64 [k], or a mask [n]; each once, ascending."""
        return np.flatnonzero(np.bincount(self.track[rows], minlength=len(self.tracks))).astype(np.int64)

    def each_once(self, mask: Bool) -> Int64:
        """Rows of `mask` in order of time; of events equal in name, place, time, correlation and shapes, the first."""
        rows = np.flatnonzero(mask)
        rows = rows[np.argsort(self.start_ns[rows], kind="stable")]
        together = self.start_ns[rows[1:]] == self.start_ns[rows[:-1]]
        if not together.any():
            return rows
        # Only those that begin together can be equal: the other columns are compared of them alone.
        tied = np.flatnonzero(np.append(together, False) | np.append(False, together))
        keys = (self.shape, self.correlation, self.duration_ns, self.name, self.track, self.start_ns)
        rows[tied] = among = rows[tied][np.lexsort([key[rows[tied]] for key in keys])]
        new = np.ones(len(rows), dtype=np.bool_)
        new[tied[1:]] = np.any([key[among[1:]] != key[among[:-1]] for key in keys], axis=0)
        return rows[new]

    @cached_property
    def _rows_of_names(self) -> dict[int, Int64]:
        """Of each name that an event has, its rows. Most questions are about a few names: they need not look at all
        events."""
        count = np.bincount(self.name + 1, minlength=len(self.strings) + 1)  # ABSENT first
        narrow = len(self.strings) < np.iinfo(np.uint16).max  # numpy sorts integers of 16 bits by counting
        rows = np.argsort((self.name + 1).astype(np.uint16) if narrow else self.name, kind="stable")
        stop = np.cumsum(count).tolist()
        return {name: rows[stop[name] : stop[name + 1]] for name in np.flatnonzero(count[1:]).tolist()}

    @cached_property
    def _in_category(self) -> dict[tuple[str, ...], Bool]:
        return {}


def _one_of(column: Int32, numbers: Sequence[int] | Int64, count: int) -> Bool:
    """Mask [n]: values of a column, all ABSENT or below `count`, that are among `numbers`."""
    if len(numbers) <= _FEW:  # comparing is faster than looking up
        mask = np.zeros(len(column), dtype=np.bool_)
        for number in numbers:
            mask |= column == np.int32(number)
        return mask
    among = np.zeros(count + 1, dtype=np.bool_)  # the last entry answers for ABSENT
    among[np.asarray(numbers, dtype=np.int64)] = True
    return among.take(column)


@dataclass(frozen=True, kw_only=True)
class ProcessGroup:
    """A process group as `distributedInfo` lists it."""

    name: str
    description: str
    backend: str
    ranks: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class TraceHeader:
    """What a trace says about itself outside its events; None or empty where it does not."""

    rank: int | None = None
    world_size: int | None = None
    backend: str | None = None
    process_groups: tuple[ProcessGroup, ...] = ()
    device_names: tuple[str, ...] = ()
    host: str | None = None
    trace_id: str | None = None
    base_time_ns: int = 0
    metadata: CaptureMetadata | None = None


@dataclass(frozen=True, kw_only=True)
class DecodedTrace:
    """A trace file, decoded. `complete` is False when the file ended before its events did."""

    file: str
    header: TraceHeader
    events: EventTable
    complete: bool = True
    notes: tuple[Note, ...] = ()
