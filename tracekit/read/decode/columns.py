"""Events as msgspec decodes them to an `EventTable`: the second half of the portable decoder.

Rows without a usable start or duration, or out of range, are dropped and counted by kind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np

from tracekit.model.events import ABSENT, EventTable, Track
from tracekit.read.decode.field_values import (
    Scalar,
    exact_nanoseconds,
    integer_or_none,
    select_extra_args,
    shape_hash,
    to_id,
    to_ids,
    to_nanoseconds,
    to_track_id,
)
from tracekit.read.decode.operators import COMMUNICATION_PREFIXES, SIZED
from tracekit.read.decode.table import (
    COLLECTIVE_NUMBERS,
    COLLECTIVE_TEXT,
    DENSE,
    MEMORY,
    SHAPES,
    SYNCHRONISATION,
    build_table,
)
from tracekit.read.decode.written_events import RawArguments, RawEvent

_MEMORY_NAME = "[memory]"
_NO_ARGUMENTS = RawArguments()


class _ShapeHashes(dict[bytes, int]):
    def __missing__(self, text: bytes) -> int:
        self[text] = value = shape_hash(text)
        return value


class _Interner(dict[Any, int]):
    def __missing__(self, key: Any) -> int:
        self[key] = index = len(self)
        return index


class ColumnBuilder:
    """Collects events chunk by chunk, until `table(base_time_ns)` ends the collection.

    Attributes:
        dropped: How many events were dropped so far, by kind of note.
        met: How many events were met so far.
    """

    def __init__(self, *, extra_args: bool = False) -> None:
        self.dropped: Counter[str] = Counter()
        self._strings: dict[str, int] = _Interner()
        self._tracks: dict[tuple[Scalar, Scalar], int] = _Interner()
        self._shapes = _ShapeHashes()
        self._names_of_pids: dict[Scalar, str] = {}
        self._names_of_tracks: dict[tuple[Scalar, Scalar], str] = {}
        self._other_phases: Counter[str] = Counter()
        self._open: dict[tuple[Scalar, Scalar], list[RawEvent]] = {}
        self._communication_names: dict[int, bool] = {}
        self._sized_names: dict[int, bool] = {}
        self._dense = DENSE | {"extra_args": np.int32, "position": np.int32} if extra_args else DENSE
        self._columns: dict[str, list[np.ndarray]] = {name: [] for name in self._dense}
        self._collectives: dict[str, list[int]] = {
            name: [] for name in ("row", *COLLECTIVE_TEXT, *COLLECTIVE_NUMBERS, *SHAPES)
        }
        self._operators: dict[str, list[int]] = {name: [] for name in ("row", *SHAPES)}
        self._memory: dict[str, list[int]] = {name: [] for name in MEMORY}
        self._synchronisations: dict[str, list[int]] = {"row": [], "arguments": []}
        self._counters: dict[str, list[int]] = {"time_ns": [], "process": [], "name": [], "arguments": []}
        self._rows = 0
        self.met = 0

    def add(self, events: Sequence[RawEvent]) -> None:
        """Append one chunk.

        `RawText.restore` must have replaced the times that a float64 cannot hold, and given all events the text of
        their arguments if extra arguments are kept.
        """
        first, self.met = self.met, self.met + len(events)
        position = np.arange(first, self.met, dtype=np.int32)
        if any(event.ph != "X" for event in events):
            slices = [self._slice_of(event) for event in events]
            position[[event.ph != "X" for event in events]] = ABSENT
            is_slice = [slice_ is not None for slice_ in slices]
            position = position[is_slice]
            events = [slice_ for slice_ in slices if slice_ is not None]
        if not events:
            return
        start_ns, start_known = to_nanoseconds([event.ts for event in events])
        duration_ns, duration_known = to_nanoseconds([event.dur for event in events])
        bad = ~(start_known & duration_known)
        negative = ~bad & (duration_ns < 0)
        if bad.any() or negative.any():
            self.dropped["malformed-event"] += int(bad.sum())
            self.dropped["negative-duration"] += int(negative.sum())
            good = ~(bad | negative)
            events = [event for event, is_good in zip(events, good, strict=True) if is_good]
            start_ns, duration_ns, position = start_ns[good], duration_ns[good], position[good]
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
        columns["correlation"].append(to_ids([a.correlation for a in arguments]))
        columns["external_id"].append(to_ids([a.external_id for a in arguments]))
        columns["sequence_number"].append(to_ids([a.sequence_number for a in arguments]))
        columns["forward_thread"].append(to_ids([a.forward_thread for a in arguments]))
        shapes = self._shapes
        shape = [shapes[bytes(a.input_shapes) or bytes(a.grid)] for a in arguments]
        columns["shape"].append(np.array(shape, dtype=np.int64))
        if "extra_args" in columns:
            texts = [select_extra_args(bytes(event.written_args)) for event in events]
            ids = [strings[text] if text else ABSENT for text in texts]
            columns["extra_args"].append(np.array(ids, dtype=np.int32))
            columns["position"].append(position)
        self._add_collectives(names, arguments)
        self._add_operators(names, arguments)
        for row, event in enumerate(events, start=self._rows):
            if event.cat == SYNCHRONISATION and event.args is not None:
                self._synchronisations["row"].append(row)
                self._synchronisations["arguments"].append(self._written(event))
        self._rows += len(events)

    def table(self, base_time_ns: int) -> EventTable:
        """Return all rows, with `start_ns` on the wall clock.

        Drops B events without an E, and rows out of range.
        """
        self.dropped["malformed-event"] += sum(map(len, self._open.values()))
        dense = {name: _concatenate(self._columns.pop(name), dtype) for name, dtype in self._dense.items()}
        events, outside = build_table(
            base_time_ns=base_time_ns,
            strings=list(self._strings),
            tracks=[self._track(pid, tid) for pid, tid in self._tracks],
            dense=dense,
            collectives=_as_arrays(self._collectives),
            operators=_as_arrays(self._operators),
            memory=_as_arrays(self._memory),
            synchronisations=_as_arrays(self._synchronisations),
            counters=_as_arrays(self._counters),
            other_phases=self._other_phases,
        )
        self.dropped["out-of-range"] += outside
        return events

    def _slice_of(self, event: RawEvent) -> RawEvent | None:
        """Return a complete event itself, and for the end of a B/E pair the slice that it closes; else count it."""
        phase = event.ph
        if phase == "X":
            return event
        if phase == "B":
            self._open.setdefault((event.pid, event.tid), []).append(event)
            return None
        if phase == "E":
            stack = self._open.get((event.pid, event.tid))
            if not stack:
                self.dropped["malformed-event"] += 1
                return None
            begin = stack.pop()
            start_ns, end_ns = exact_nanoseconds(begin.ts), exact_nanoseconds(event.ts)
            begin.dur = None if start_ns is None or end_ns is None else str(Decimal(end_ns - start_ns) / 1000)
            return begin
        if phase is None:
            self.dropped["malformed-event"] += 1
            return None
        if phase == "i" and event.name == _MEMORY_NAME and self._add_memory(event):
            return None
        if phase == "C" and self._add_counter(event):
            return None
        self._other_phases[phase] += 1
        if phase == "M" and event.args is not None and event.args.label is not None:
            if event.name == "process_name":
                self._names_of_pids[event.pid] = str(event.args.label)
            elif event.name == "thread_name":
                self._names_of_tracks[event.pid, event.tid] = str(event.args.label)
        return None

    def _add_memory(self, event: RawEvent) -> bool:
        """Add a memory record. Return whether it could be used."""
        arguments = event.args or _NO_ARGUMENTS
        time_ns, change_bytes = exact_nanoseconds(event.ts), integer_or_none(arguments.change_bytes)
        if time_ns is None or change_bytes is None:
            return False
        known: dict[str, int | None] = {"time_ns": time_ns, "change_bytes": change_bytes}
        for name, values in self._memory.items():
            value = known[name] if name in known else integer_or_none(getattr(arguments, name))
            values.append(ABSENT if value is None else value)
        return True

    def _add_counter(self, event: RawEvent) -> bool:
        """Add a sample of a counter. Return whether it has a time and arguments."""
        time_ns, strings, counters = exact_nanoseconds(event.ts), self._strings, self._counters
        if time_ns is None or event.args is None:
            return False
        counters["time_ns"].append(time_ns)
        counters["process"].append(ABSENT if event.pid is None else strings[str(event.pid)])
        counters["name"].append(strings[event.name or ""])
        counters["arguments"].append(self._written(event))
        return True

    def _written(self, event: RawEvent) -> int:
        return self._strings[bytes(event.written_args).decode("utf-8", "replace")]

    def _add_collectives(self, names: list[int], arguments: list[RawArguments]) -> None:
        known, strings = self._communication_names, self._strings
        if unseen := set(names) - known.keys():
            texts = list(strings)
            known.update({name: texts[name].startswith(COMMUNICATION_PREFIXES) for name in unseen})
            self._sized_names.update({name: texts[name] in SIZED for name in unseen})
        collectives = self._collectives
        for row, (name, a) in enumerate(zip(names, arguments, strict=True), start=self._rows):
            if a.collective is None and not known[name]:
                continue
            collectives["row"].append(row)
            for field in COLLECTIVE_TEXT:
                value = getattr(a, field)
                collectives[field].append(ABSENT if value is None else strings[str(value)])
            for field in COLLECTIVE_NUMBERS:
                collectives[field].append(to_id(getattr(a, field)))
            self._add_shapes(collectives, a)

    def _add_operators(self, names: list[int], arguments: list[RawArguments]) -> None:
        sized, operators = self._sized_names, self._operators
        for row, name in enumerate(names):
            if sized[name]:
                operators["row"].append(self._rows + row)
                self._add_shapes(operators, arguments[row])

    def _add_shapes(self, columns: dict[str, list[int]], a: RawArguments) -> None:
        for field in SHAPES:
            text = bytes(getattr(a, field))
            columns[field].append(self._strings[text.decode("utf-8", "replace")] if text else ABSENT)

    def _track(self, pid: Scalar, tid: Scalar) -> Track:
        return Track(
            pid=to_track_id(pid),
            tid=to_track_id(tid),
            process_name=self._names_of_pids.get(pid, ""),
            thread_name=self._names_of_tracks.get((pid, tid), ""),
        )


def _as_arrays(columns: dict[str, list[int]]) -> dict[str, Any]:
    wide = ("row", "time_ns", *COLLECTIVE_NUMBERS, *MEMORY)
    return {name: np.array(values, dtype=np.int64 if name in wide else np.int32) for name, values in columns.items()}


def _concatenate(pieces: list[np.ndarray], dtype: type) -> np.ndarray:
    return np.concatenate(pieces) if pieces else np.empty(0, dtype=dtype)
