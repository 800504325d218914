"""One rank's trace as columns: every decoder returns it, and the analysis of a rank reads it.

A slice is a complete event (`ph` X, or a B/E pair), with a start and a duration. Text is interned: a column of text has
int32 indexes into `EventTable.strings`, or `ABSENT`. Times are int64 nanoseconds of the rank's wall clock
(`baseTimeNanoseconds + ts`). Rows are in the order of the file. Both decoders return the same table, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tracekit.model.metadata import CaptureMetadata
from tracekit.model.notes import Note

ABSENT = -1
"""In any integer column: not recorded."""

ROUNDED_NS = 2_000
"""By how much a begin and an end that are one moment may differ: a start and a duration may each be rounded to a
microsecond.
"""

PROFILER_OPTIONS = ("with_stack", "record_shapes", "profile_memory", "with_flops", "with_modules")
"""Options of torch.profiler that make the host slower. torch writes those that are on into the header of a trace."""

_FEW = 4

Int64 = npt.NDArray[np.int64]
Int32 = npt.NDArray[np.int32]
Float64 = npt.NDArray[np.float64]
Bool = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Track:
    """A (pid, tid) pair: a host thread, or a stream of a device. Ids are as in the file; some tools write text."""

    pid: int | str
    tid: int | str
    process_name: str = ""
    thread_name: str = ""


@dataclass(frozen=True, kw_only=True, eq=False)
class CollectiveArguments:
    """The arguments of communication events, one row per event that has any.

    `row` is the row in the event table. The int32 columns are interned text; `input_shapes`, `input_types` and
    `concrete_inputs` are the JSON in the file. `source_rank` and `destination_rank` are the global rank at the other
    end of a receive and of a send. `ABSENT` means not recorded.
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
    source_rank: Int64
    destination_rank: Int64
    input_shapes: Int32
    input_types: Int32
    concrete_inputs: Int32


def _no_rows() -> Int64:
    return np.empty(0, dtype=np.int64)


def _no_text() -> Int32:
    return np.empty(0, dtype=np.int32)


@dataclass(frozen=True, kw_only=True, eq=False)
class OperatorArguments:
    """The inputs of the operators in `read.decode.operators.SIZED`, one row per event.

    `row` is the row in the event table. The other columns are interned text, the JSON in the file. `ABSENT` means not
    recorded.
    """

    row: Int64 = field(default_factory=_no_rows)
    input_shapes: Int32 = field(default_factory=_no_text)
    input_types: Int32 = field(default_factory=_no_text)
    concrete_inputs: Int32 = field(default_factory=_no_text)


@dataclass(frozen=True, kw_only=True, eq=False)
class MemoryRecords:
    """What allocators told the profiler (`[memory]`, with `profile_memory`): n allocations and frees in the order of
    the file.

    All columns are int64 [n]. `ABSENT` means not recorded.

    Attributes:
        time_ns: on the clock of the events' starts.
        device_type: a number of c10::DeviceType (0: CPU).
        device_id: `ABSENT` for the CPU.
        change_bytes: allocated bytes, or freed ones if negative; always known.
        allocated_bytes: what tensors on the device hold from then on, as the allocator reports it.
        reserved_bytes: what the allocator holds of the device from then on.
    """

    time_ns: Int64 = field(default_factory=_no_rows)
    device_type: Int64 = field(default_factory=_no_rows)
    device_id: Int64 = field(default_factory=_no_rows)
    change_bytes: Int64 = field(default_factory=_no_rows)
    allocated_bytes: Int64 = field(default_factory=_no_rows)
    reserved_bytes: Int64 = field(default_factory=_no_rows)

    def __len__(self) -> int:
        return len(self.time_ns)


@dataclass(frozen=True, kw_only=True, eq=False)
class StreamWaits:
    """What events of the category `cuda_sync` wait for, one row per event. All columns are int64 [n].

    Attributes:
        row: in the event table.
        stream: the stream that waits; `ABSENT` where the host does.
        awaited_stream: `ABSENT` where it is not recorded, or for all of them.
        record: the correlation id of the call that recorded the awaited event, or `ABSENT`.
    """

    row: Int64 = field(default_factory=_no_rows)
    stream: Int64 = field(default_factory=_no_rows)
    awaited_stream: Int64 = field(default_factory=_no_rows)
    record: Int64 = field(default_factory=_no_rows)

    def __len__(self) -> int:
        return len(self.row)


@dataclass(frozen=True, kw_only=True, eq=False)
class CounterSamples:
    """Values of counters (`ph` C), such as clock rates, power, or activity of a device: n samples in the order of the
    file.

    Attributes:
        time_ns: on the clock of the events' starts, int64 [n].
        series: index into `names`, int64 [n].
        value: finite, float64 [n].
        names: of the series: the process where it has a name or tells series apart, the event, and the argument.
    """

    time_ns: Int64 = field(default_factory=_no_rows)
    series: Int64 = field(default_factory=_no_rows)
    value: Float64 = field(default_factory=lambda: np.empty(0, dtype=np.float64))
    names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.time_ns)

    def rows(self, mask: Bool) -> CounterSamples:
        """Return the samples of a mask, bool [n]."""
        return replace(self, time_ns=self.time_ns[mask], series=self.series[mask], value=self.value[mask])


@dataclass(frozen=True, kw_only=True, eq=False)
class EventTable:
    """All slices of one trace file, n rows.

    Attributes:
        strings: the distinct texts that interned columns refer to.
        tracks: the tracks that `track` refers to.
        name: interned, int32 [n].
        category: interned, int32 [n].
        track: index into `tracks`, int32 [n].
        start_ns: int64 [n].
        duration_ns: int64 [n].
        correlation: links a device event to its launch, int64 [n] or `ABSENT`.
        external_id: links a device event to its operator, int64 [n] or `ABSENT`.
        sequence_number: with `forward_thread` links a backward operator to its forward, int64 [n] or `ABSENT`.
        forward_thread: see `sequence_number`, int64 [n] or `ABSENT`.
        shape: a hash of the shapes of an operator's inputs or of a kernel's grid, int64 [n] or `ABSENT`. Equal shapes
            have the same hash in every process.
        extra_args: interned JSON object of all arguments but ids and counters (`read.decode.extra_args`), int32 [n] or
            `ABSENT`; [0] if they were not asked for.
        position: of the event among all events of the file, int32 [n], `ABSENT` for a B/E pair; [0] if extra arguments
            were not asked for.
        other_phases: how many events of each other phase (flows, instants, metadata) the file has, without those in
            `memory` and `counters`.
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
    position: Int32 = field(default_factory=_no_text)
    collective_arguments: CollectiveArguments
    operator_arguments: OperatorArguments = field(default_factory=OperatorArguments)
    memory: MemoryRecords = field(default_factory=MemoryRecords)
    stream_waits: StreamWaits = field(default_factory=StreamWaits)
    counters: CounterSamples = field(default_factory=CounterSamples)
    other_phases: dict[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.start_ns)

    @cached_property
    def end_ns(self) -> Int64:
        return self.start_ns + self.duration_ns

    @property
    def categories(self) -> frozenset[str]:
        """Return all categories that events have."""
        count = np.bincount(self.category + 1, minlength=len(self.strings) + 1)  # ABSENT first
        return frozenset(self.strings[index] for index in np.flatnonzero(count[1:]).tolist())

    def in_category(self, *categories: str) -> Bool:
        """Return a mask [n] of the events of any of these categories. The mask is read-only."""
        if categories not in self._in_category:
            ids = [self._number_of_text[text] for text in categories if text in self._number_of_text]
            self._in_category[categories] = mask = _one_of(self.category, ids, len(self.strings))
            mask.setflags(write=False)
        return self._in_category[categories]

    def named(self, predicate: Callable[[str], bool]) -> Bool:
        """Return a mask [n] of the events whose name satisfies `predicate`, which is called once per distinct name."""
        mask = np.zeros(len(self), dtype=np.bool_)
        for name, rows in self._rows_of_names:
            if predicate(name):
                mask[rows] = True
        return mask

    def on_tracks(self, tracks: Int64) -> Bool:
        """Return a mask [n] of the events on any of these tracks. The mask is read-only."""
        key = tuple(tracks.tolist())
        if key not in self._on_tracks:
            self._on_tracks[key] = mask = _one_of(self.track, tracks, len(self.tracks))
            mask.setflags(write=False)
        return self._on_tracks[key]

    def tracks_of(self, rows: Int64 | Bool) -> Int64:
        """Return the distinct tracks of the events in `rows` (int64 [k], or a mask [n]), ascending."""
        return np.flatnonzero(np.bincount(self.track[rows], minlength=len(self.tracks))).astype(np.int64)

    def each_once(self, mask: Bool) -> Int64:
        """Return the rows of `mask` in order of time, without duplicates.

        Events with equal name, place, time, correlation and shapes are duplicates; the first one stays. So is an event
        without correlation if another of equal name, place and time has one: the arguments of a copy are lost.
        """
        rows = np.flatnonzero(mask)
        rows = rows[np.argsort(self.start_ns[rows], kind="stable")]
        together = self.start_ns[rows[1:]] == self.start_ns[rows[:-1]]
        if not together.any():
            return rows
        # Only events with equal starts can be duplicates, so the other columns are compared for them alone.
        tied = np.flatnonzero(np.append(together, False) | np.append(False, together))
        keys = (self.shape, self.correlation, self.duration_ns, self.name, self.track, self.start_ns)
        rows[tied] = among = rows[tied][np.lexsort([key[rows[tied]] for key in keys])]
        new = np.ones(len(rows), dtype=np.bool_)
        differs = [key[among[1:]] != key[among[:-1]] for key in keys]
        new[tied[1:]] = np.any(differs, axis=0)
        group = np.cumsum(np.append(False, np.any(differs[2:], axis=0)))
        has_id = self.correlation[among] != ABSENT
        new[tied] &= has_id | (np.bincount(group, weights=has_id)[group] == 0)
        return rows[new]

    @cached_property
    def _rows_of_names(self) -> list[tuple[str, Int64]]:
        """Return each name that occurs, with its rows.

        Most questions are about few names, and so do not need to look at all events.
        """
        # ABSENT becomes 0. numpy sorts integers of up to 16 bits by counting.
        number = (self.name + 1).astype(np.min_scalar_type(len(self.strings)))
        rows = np.argsort(number, kind="stable")
        first = np.searchsorted(number[rows], np.arange(1, len(self.strings) + 1).astype(number.dtype))
        stop = np.append(first[1:], len(rows))
        names = np.flatnonzero(stop > first)
        runs = zip(names.tolist(), first[names].tolist(), stop[names].tolist(), strict=True)
        return [(self.strings[name], rows[begin:end]) for name, begin, end in runs]

    @cached_property
    def _number_of_text(self) -> dict[str, int]:
        return {text: number for number, text in enumerate(self.strings)}

    @cached_property
    def _in_category(self) -> dict[tuple[str, ...], Bool]:
        return {}

    @cached_property
    def _on_tracks(self) -> dict[tuple[int, ...], Bool]:
        return {}


def _one_of(column: Int32, numbers: Sequence[int] | Int64, count: int) -> Bool:
    """Return a mask [n] of the values of a column that are among `numbers`. All values are ABSENT or below `count`."""
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
    """What a trace says of itself outside its events. None or empty means not recorded.

    Attributes:
        profiler_messages: warnings and errors that the profiler wrote into its trace, without time and place.
        profiler_options: those of `PROFILER_OPTIONS` that were on.
    """

    rank: int | None = None
    world_size: int | None = None
    backend: str | None = None
    process_groups: tuple[ProcessGroup, ...] = ()
    device_names: tuple[str, ...] = ()
    host: str | None = None
    trace_id: str | None = None
    base_time_ns: int = 0
    metadata: CaptureMetadata | None = None
    profiler_messages: tuple[str, ...] = ()
    profiler_options: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class DecodedTrace:
    """A decoded trace file.

    Attributes:
        complete: False when the file ended before its events did.
        intact: False when the file is damaged, so that any event may be wrong.
        keys: the JSON text of each top-level key besides the events; empty if extra arguments were not asked for.
    """

    file: str
    header: TraceHeader
    events: EventTable
    complete: bool = True
    intact: bool = True
    notes: tuple[Note, ...] = ()
    keys: Mapping[str, bytes] = field(default_factory=dict)
