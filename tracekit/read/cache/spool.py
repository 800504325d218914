"""Decoded traces laid aside for whoever needs them again in the same command: columns to a file and back, in a tenth of
the time that decoding takes.

Comes in: a decoded trace. Goes out: the same, once. Not a cache: a shelf lives in a temporary folder of one process and
its workers, and what is on it is trusted.
"""

from __future__ import annotations

import hashlib
import pickle
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np
import numpy.typing as npt

from tracekit.model.events import (
    CollectiveArguments,
    DecodedTrace,
    EventTable,
    MemoryRecords,
    OperatorArguments,
    TraceHeader,
    Track,
)
from tracekit.model.notes import Note
from tracekit.read.files.storage import TracePath

__all__ = ["Shelf"]


class _Column(msgspec.Struct, array_like=True, frozen=True):
    """Of `count` integers of type `dtype`. The file has what they are above `least`, in the type `kept_as`."""

    dtype: str
    count: int
    least: int
    kept_as: str


@dataclass(frozen=True, kw_only=True)
class _Rest:
    """All of a decoded trace but its columns, which come before it in the file and are told of in `columns`."""

    file: str
    header: TraceHeader
    complete: bool
    notes: tuple[Note, ...]
    strings: list[str]
    tracks: list[Track]
    other_phases: dict[str, int]
    columns: list[_Column]


_REST = msgspec.msgpack.Decoder(_Rest)
_PLACE_BYTES = 8


@dataclass(frozen=True, kw_only=True)
class Shelf:
    """A folder that exists."""

    folder: Path

    def keep(self, path: TracePath, trace: DecodedTrace, beside: object = None) -> None:
        """Lay aside what was decoded from `path`, and what was made of it, which can be pickled. What there is no room
        for, or has numbers too large for the file, is decoded again."""
        place = self._place(path)
        try:
            with place.open("wb") as stream:
                _write(stream, trace)
                pickle.dump(beside, stream, protocol=5)
        except (OSError, ValueError, TypeError, OverflowError):
            place.unlink(missing_ok=True)

    def take(self, path: TracePath) -> tuple[DecodedTrace, Any] | None:
        """What was decoded from `path` and what lies beside it, which leave the shelf; None where nothing was laid
        aside."""
        place = self._place(path)
        try:
            with place.open("rb") as stream:
                return _read(stream), pickle.load(stream)  # noqa: S301 (only this process and its workers write there)
        except FileNotFoundError:
            return None
        finally:
            place.unlink(missing_ok=True)

    def _place(self, path: TracePath) -> Path:
        return self.folder / hashlib.sha256(str(path).encode()).hexdigest()


def _write(stream: BinaryIO, trace: DecodedTrace) -> None:
    """First where the rest stands, then the columns, the length of the rest, and the rest."""
    events = trace.events
    stream.write(bytes(_PLACE_BYTES))
    columns = []
    for table, names in _tables(events):
        for name in names:
            column, kept = _narrowed(getattr(table, name))
            stream.write(kept.data)  # at once, while it is in the CPU's cache
            columns.append(column)
    rest = _Rest(
        file=trace.file,
        header=trace.header,
        complete=trace.complete,
        notes=trace.notes,
        strings=events.strings,
        tracks=events.tracks,
        other_phases=events.other_phases,
        columns=columns,
    )
    told = msgspec.msgpack.encode(rest)
    place = stream.tell()
    stream.write(len(told).to_bytes(_PLACE_BYTES, "little") + told)
    end = stream.tell()
    stream.seek(0)
    stream.write(place.to_bytes(_PLACE_BYTES, "little"))
    stream.seek(end)


def _narrowed(column: npt.NDArray[Any]) -> tuple[_Column, npt.NDArray[Any]]:
    """How to keep it in few bytes: to write and read them costs more than to make them so."""
    least, most = (int(column.min()), int(column.max())) if len(column) else (0, 0)
    kept_as = np.min_scalar_type(most - least)
    if kept_as.itemsize >= column.dtype.itemsize:
        least, kept_as = 0, column.dtype
    kept = (column - least if least else column).astype(kept_as)
    return _Column(dtype=column.dtype.str, count=len(column), least=least, kept_as=kept_as.str), kept


def _widened(stream: BinaryIO, told: _Column) -> npt.NDArray[Any]:
    column = np.fromfile(stream, dtype=told.kept_as, count=told.count).astype(told.dtype, copy=False)
    column += told.least
    return column


def _read(stream: BinaryIO) -> DecodedTrace:
    stream.seek(_number(stream))
    rest = _REST.decode(stream.read(_number(stream)))
    end = stream.tell()
    stream.seek(_PLACE_BYTES)
    columns = iter([_widened(stream, told) for told in rest.columns])
    stream.seek(end)
    dense, collectives, operators, memory = ({name: next(columns) for name in names} for names in _COLUMNS)
    events = EventTable(
        strings=rest.strings,
        tracks=rest.tracks,
        other_phases=rest.other_phases,
        collective_arguments=CollectiveArguments(**collectives),
        operator_arguments=OperatorArguments(**operators),
        memory=MemoryRecords(**memory),
        **dense,
    )
    return DecodedTrace(file=rest.file, header=rest.header, events=events, complete=rest.complete, notes=rest.notes)


def _number(stream: BinaryIO) -> int:
    return int.from_bytes(stream.read(_PLACE_BYTES), "little")


def _names(table: type[Any], *others: str) -> tuple[str, ...]:
    return tuple(field.name for field in fields(table) if field.name not in others)


_COLUMNS = (
    _names(EventTable, "strings", "tracks", "other_phases", "collective_arguments", "operator_arguments", "memory"),
    _names(CollectiveArguments),
    _names(OperatorArguments),
    _names(MemoryRecords),
)


def _tables(events: EventTable) -> list[tuple[Any, tuple[str, ...]]]:
    tables = (events, events.collective_arguments, events.operator_arguments, events.memory)
    return list(zip(tables, _COLUMNS, strict=True))
