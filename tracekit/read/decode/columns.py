"""Typed events to columns: the half of the portable decoder that knows which fields and arguments are kept.

Comes in: lists of `RawEvent` as msgspec built them from the text. Goes out: an `EventTable`. Rows that cannot be used
(no start, no duration, out of range) are dropped and counted by kind.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec
import numpy as np

from tracekit.model.events import ABSENT, EventTable, Int64, Track
from tracekit.read.decode.extra_args import select_extra_args
from tracekit.read.decode.operators import MULTIPLYING
from tracekit.read.decode.table import COLLECTIVE_NUMBERS, COLLECTIVE_TEXT, DENSE, LIMIT_NS, MEMORY, SHAPES, build_table

Scalar = int | float | str | None
_NO_TEXT = msgspec.Raw(b"")

# Above this, a float64 of microseconds no longer tells nanoseconds apart (its step is 2**-9 us).
_EXACT_MICROSECONDS = float(1 << 43)
_LIMIT_DIGITS = 18

# The operators whose shapes tell the size of a communication. Of these and of those that multiply the shapes are kept,
# of other events a hash.
COMMUNICATION_PREFIXES = (
    "c10d::",
    "gloo:",
    "nccl:",
    "_c10d_functional::",
    "record_param_comms",
    "mpi:",
    "ucc:",
    "xccl:",
    "torch::distributed::reducer::",  # gradients on their way into a bucket of DDP
)
_MEMORY_NAME = "[memory]"

__all__ = [
    "COMMUNICATION_PREFIXES",
    "ColumnBuilder",
    "RawArguments",
    "RawEvent",
    "RawText",
    "exact_nanoseconds",
    "is_inexact",
    "shape_hash",
]


class RawArguments(msgspec.Struct, gc=False):
    """The arguments that are kept; msgspec skips all others without building them."""

    external_id: Scalar = msgspec.field(name="External id", default=None)
    correlation: Scalar = None
    sequence_number: Scalar = msgspec.field(name="Sequence number", default=None)
    forward_thread: Scalar = msgspec.field(name="Fwd thread id", default=None)
    collective: Scalar = msgspec.field(name="Collective name", default=None)
    dtype: Scalar = None
    in_elements: Scalar = msgspec.field(name="In msg nelems", default=None)
    out_elements: Scalar = msgspec.field(name="Out msg nelems", default=None)
    group_size: Scalar = msgspec.field(name="Group size", default=None)
    group_name: Scalar = msgspec.field(name="Process Group Name", default=None)
    group_description: Scalar = msgspec.field(name="Process Group Description", default=None)
    group_ranks: Scalar = msgspec.field(name="Process Group Ranks", default=None)
    sequence: Scalar = msgspec.field(name="Seq", default=None)
    input_shapes: msgspec.Raw = msgspec.field(name="Input Dims", default=_NO_TEXT)
    input_types: msgspec.Raw = msgspec.field(name="Input type", default=_NO_TEXT)
    concrete_inputs: msgspec.Raw = msgspec.field(name="Concrete Inputs", default=_NO_TEXT)
    grid: msgspec.Raw = _NO_TEXT
    device_type: msgspec.Raw = msgspec.field(name="Device Type", default=_NO_TEXT)
    device_id: msgspec.Raw = msgspec.field(name="Device Id", default=_NO_TEXT)
    change_bytes: msgspec.Raw = msgspec.field(name="Bytes", default=_NO_TEXT)
    allocated_bytes: msgspec.Raw = msgspec.field(name="Total Allocated", default=_NO_TEXT)
    reserved_bytes: msgspec.Raw = msgspec.field(name="Total Reserved", default=_NO_TEXT)
    label: Scalar = msgspec.field(name="name", default=None)


class RawEvent(msgspec.Struct, gc=False):
    ph: str | None = None
    name: str | None = None
    cat: str | None = None
    ts: Scalar = None
    dur: Scalar = None
    pid: Scalar = None
    tid: Scalar = None
    args: RawArguments | None = None
    written_args: msgspec.Raw = msgspec.Raw(b"null")  # what `RawText` puts here, whatever a file has under that name


class RawText(msgspec.Struct, gc=False):
    """Start, duration and arguments as they are written: a float64 cannot hold all numbers, nor `RawArguments` all
    arguments."""

    ts: msgspec.Raw = msgspec.Raw(b"null")
    dur: msgspec.Raw = msgspec.Raw(b"null")
    args: msgspec.Raw = msgspec.Raw(b"null")

    def restore(self, event: RawEvent) -> None:
        """Put the text in the place of those of the event's numbers that lost digits, and that of its arguments
        beside them."""
        event.written_args = msgspec.Raw(bytes(self.args))  # a copy: it is a view of the whole text
        if is_inexact(event.ts):
            event.ts = bytes(self.ts).decode("ascii")
        if is_inexact(event.dur):
            event.dur = bytes(self.dur).decode("ascii")


def is_inexact(microseconds: Scalar) -> bool:
    """Whether this is a float too large to carry nanoseconds: its text must be parsed."""
    return isinstance(microseconds, float) and abs(microseconds) >= _EXACT_MICROSECONDS


_NO_ARGUMENTS = RawArguments()


class _Hashes(dict[bytes, int]):
    def __missing__(self, text: bytes) -> int:
        self[text] = value = shape_hash(text)
        return value


class _Interner(dict[Any, int]):
    def __missing__(self, key: Any) -> int:
        self[key] = index = len(self)
        return index


def shape_hash(text: bytes) -> int:
    """JSON to a number that is the same in every process; ABSENT for no text."""
    digest = hashlib.blake2b(text.replace(b" ", b""), digest_size=7).digest()
    return int.from_bytes(digest, "little") if text else ABSENT


def exact_nanoseconds(value: Scalar) -> int | None:
    """Microseconds, as a number or as text, to integer nanoseconds; None when it is no finite number in range."""
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, float) and abs(value) < _EXACT_MICROSECONDS:
        whole = math.floor(value)
        return whole * 1000 + round((value - whole) * 1000)
    try:
        microseconds = Decimal(value)
    except InvalidOperation:
        return None
    if not microseconds.is_finite() or microseconds.adjusted() > _LIMIT_DIGITS:
        return None
    nanoseconds = int((microseconds * 1000).to_integral_value())
    return nanoseconds if -LIMIT_NS < nanoseconds < LIMIT_NS else None


class ColumnBuilder:
    """Collects events chunk by chunk; `table(base_time_ns)` ends the collection."""

    def __init__(self, *, extra_args: bool = False) -> None:
        self.dropped: Counter[str] = Counter()  # by kind of note
        self._strings: dict[str, int] = _Interner()
        self._tracks: dict[tuple[Scalar, Scalar], int] = _Interner()
        self._shapes = _Hashes()
        self._names_of_pids: dict[Scalar, str] = {}
        self._names_of_tracks: dict[tuple[Scalar, Scalar], str] = {}
        self._other_phases: Counter[str] = Counter()
        self._open: dict[tuple[Scalar, Scalar], list[RawEvent]] = {}
        self._communication_names: dict[int, bool] = {}
        self._multiplying_names: dict[int, bool] = {}
        self._dense = DENSE | {"extra_args": np.int32} if extra_args else DENSE
        self._columns: dict[str, list[np.ndarray]] = {name: [] for name in self._dense}
        self._sparse: dict[str, list[int]] = {
            name: [] for name in ("row", *COLLECTIVE_TEXT, *COLLECTIVE_NUMBERS, *SHAPES)
        }
        self._operators: dict[str, list[int]] = {name: [] for name in ("row", *SHAPES)}
        self._memory: dict[str, list[int]] = {name: [] for name in MEMORY}
        self._rows = 0

    def add(self, events: Sequence[RawEvent]) -> None:
        """Append one chunk. Numbers that a float64 cannot hold must have been replaced by their text, and for extra_args
        events must have their arguments as they are written."""
        if any(event.ph != "X" for event in events):
            events = [slice_ for event in events if (slice_ := self._slice_of(event)) is not None]
        if not events:
            return
        start_ns, start_known = _to_nanoseconds([event.ts for event in events])
        duration_ns, duration_known = _to_nanoseconds([event.dur for event in events])
        bad = ~(start_known & duration_known)
        negative = ~bad & (duration_ns < 0)
        if bad.any() or negative.any():
            self.dropped["malformed_event"] += int(bad.sum())
            self.dropped["negative_duration"] += int(negative.sum())
            keep = ~(bad | negative)
            events = [event for event, kept in zip(events, keep, strict=True) if kept]
            start_ns, duration_ns = start_ns[keep], duration_ns[keep]
            if not events:
                return
        strings, tracks = self._strings, self._tracks
        arguments = [event.args or _NO_ARGUMENTS for event in events]
        names = [strings[event.name or ""] for event in events]
        columns = self._columns
        columns["start_ns"].append(start_ns)
        columns["duration_ns"].append(duration_ns)
        columns["name"].append(np.array(names, dtype=np.int32))
        columns["category"].append(np.array([strings[event.cat or ""] for event in events], dtype=np.int32))
        columns["track"].append(np.array([tracks[event.pid, event.tid] for event in events], dtype=np.int32))
        columns["correlation"].append(_to_ids([a.correlation for a in arguments]))
        columns["external_id"].append(_to_ids([a.external_id for a in arguments]))
        columns["sequence_number"].append(_to_ids([a.sequence_number for a in arguments]))
        columns["forward_thread"].append(_to_ids([a.forward_thread for a in arguments]))
        shapes = self._shapes
        shape = [shapes[bytes(a.input_shapes) or bytes(a.grid)] for a in arguments]
        columns["shape"].append(np.array(shape, dtype=np.int64))
        if "extra_args" in columns:
            told = [select_extra_args(bytes(event.written_args)) for event in events]
            columns["extra_args"].append(np.array([strings[text] if text else ABSENT for text in told], dtype=np.int32))
        self._add_collectives(names, arguments)
        self._add_operators(names, arguments)
        self._rows += len(events)

    def table(self, base_time_ns: int) -> EventTable:
        """All rows with `start_ns` on the wall clock. Unclosed B events and rows out of range are dropped, counted."""
        self.dropped["malformed_event"] += sum(len(stack) for stack in self._open.values())
        events, outside = build_table(
            base_time_ns=base_time_ns,
            strings=list(self._strings),
            tracks=[self._track(pid, tid) for pid, tid in self._tracks],
            dense={name: _concatenate(self._columns.pop(name), dtype) for name, dtype in self._dense.items()},
            collectives=_as_arrays(self._sparse),
            operators=_as_arrays(self._operators),
            memory=_as_arrays(self._memory),
            other_phases=self._other_phases,
        )
        self.dropped["out_of_range"] += outside
        return events

    def _slice_of(self, event: RawEvent) -> RawEvent | None:
        """A complete event as it is, the end of a B/E pair as the slice it closes; everything else is counted."""
        phase = event.ph
        if phase == "X":
            return event
        if phase == "B":
            self._open.setdefault((event.pid, event.tid), []).append(event)
            return None
        if phase == "E":
            stack = self._open.get((event.pid, event.tid))
            if not stack:
                self.dropped["malformed_event"] += 1
                return None
            begin = stack.pop()
            start_ns, end_ns = exact_nanoseconds(begin.ts), exact_nanoseconds(event.ts)
            begin.dur = None if start_ns is None or end_ns is None else str(Decimal(end_ns - start_ns) / 1000)
            return begin
        if phase is None:
            self.dropped["malformed_event"] += 1
            return None
        if phase == "i" and event.name == _MEMORY_NAME and self._add_memory(event):
            return None
        self._other_phases[phase] += 1
        if phase == "M" and event.args is not None and event.args.label is not None:
            if event.name == "process_name":
                self._names_of_pids[event.pid] = str(event.args.label)
            elif event.name == "thread_name":
                self._names_of_tracks[event.pid, event.tid] = str(event.args.label)
        return None

    def _add_memory(self, event: RawEvent) -> bool:
        """Whether this record of memory could be used."""
        said = event.args or _NO_ARGUMENTS
        time_ns, change_bytes = exact_nanoseconds(event.ts), _whole_number(said.change_bytes)
        if time_ns is None or change_bytes is None:
            return False
        known: dict[str, int | None] = {"time_ns": time_ns, "change_bytes": change_bytes}
        for name, values in self._memory.items():
            value = known[name] if name in known else _whole_number(getattr(said, name))
            values.append(ABSENT if value is None else value)
        return True

    def _add_collectives(self, names: list[int], arguments: list[RawArguments]) -> None:
        known, strings = self._communication_names, self._strings
        if unseen := set(names) - known.keys():
            texts = list(strings)
            known.update({name: texts[name].startswith(COMMUNICATION_PREFIXES) for name in unseen})
            self._multiplying_names.update({name: texts[name] in MULTIPLYING for name in unseen})
        sparse = self._sparse
        for row, (name, a) in enumerate(zip(names, arguments, strict=True), start=self._rows):
            if a.collective is None and not known[name]:
                continue
            sparse["row"].append(row)
            for field in COLLECTIVE_TEXT:
                value = getattr(a, field)
                sparse[field].append(ABSENT if value is None else strings[str(value)])
            for field in COLLECTIVE_NUMBERS:
                sparse[field].append(_to_id(getattr(a, field)))
            self._add_shapes(sparse, a)

    def _add_operators(self, names: list[int], arguments: list[RawArguments]) -> None:
        multiplying, operators = self._multiplying_names, self._operators
        for row, name in enumerate(names):
            if multiplying[name]:
                operators["row"].append(self._rows + row)
                self._add_shapes(operators, arguments[row])

    def _add_shapes(self, columns: dict[str, list[int]], a: RawArguments) -> None:
        for field in SHAPES:
            text = bytes(getattr(a, field))
            columns[field].append(self._strings[text.decode("utf-8", "replace")] if text else ABSENT)

    def _track(self, pid: Scalar, tid: Scalar) -> Track:
        return Track(
            pid=_track_id(pid),
            tid=_track_id(tid),
            process_name=self._names_of_pids.get(pid, ""),
            thread_name=self._names_of_tracks.get((pid, tid), ""),
        )


def _as_arrays(columns: dict[str, list[int]]) -> dict[str, Any]:
    wide = ("row", *COLLECTIVE_NUMBERS, *MEMORY)
    return {name: np.array(values, dtype=np.int64 if name in wide else np.int32) for name, values in columns.items()}


def _concatenate(pieces: list[np.ndarray], dtype: type) -> np.ndarray:
    return np.concatenate(pieces) if pieces else np.empty(0, dtype=dtype)


def _to_nanoseconds(microseconds: list[Scalar]) -> tuple[Int64, np.ndarray]:
    """int64 nanoseconds [n] and a mask [n] of those that are usable."""
    try:
        values = np.array(microseconds)
    except (ValueError, OverflowError):
        values = np.empty(0, dtype=object)
    limit = LIMIT_NS // 1000
    if values.dtype == np.int64 and -limit < values.min(initial=0) <= values.max(initial=0) < limit:
        return values * 1000, np.ones(len(values), dtype=np.bool_)
    if values.dtype == np.float64 and np.all(np.abs(values) < _EXACT_MICROSECONDS):
        whole = np.floor(values)
        # The fraction of a float64 below 2**43 is exact to half a nanosecond; rounding restores the three decimals.
        return (whole.astype(np.int64) * 1000 + np.rint((values - whole) * 1000).astype(np.int64)), np.ones(
            len(values), dtype=np.bool_
        )
    exact = [exact_nanoseconds(value) for value in microseconds]
    known = np.array([value is not None for value in exact], dtype=np.bool_)
    return np.array([value or 0 for value in exact], dtype=np.int64), known


def _to_id(value: Scalar) -> int:
    if value is None:
        return ABSENT
    try:
        number = int(value)
    except (ValueError, OverflowError):
        return ABSENT
    return number if -LIMIT_NS < number < LIMIT_NS else ABSENT


def _whole_number(text: msgspec.Raw) -> int | None:
    """What is written as an integer; None for any other value, and for none."""
    try:
        number = int(bytes(text))
    except ValueError:
        return None
    return number if -LIMIT_NS < number < LIMIT_NS else None


def _to_ids(values: list[Scalar]) -> Int64:
    try:
        ids = np.array([ABSENT if value is None else value for value in values], dtype=np.int64)
    except (TypeError, ValueError, OverflowError):
        return np.array([_to_id(value) for value in values], dtype=np.int64)
    ids[(ids <= -LIMIT_NS) | (ids >= LIMIT_NS)] = ABSENT
    return ids


def _track_id(value: Scalar) -> int | str:
    if value is None:
        return ""
    return value if isinstance(value, int | str) else str(value)
