"""The last step of every decoder: its columns to an `EventTable`.

Comes in: columns in file order, with indexes into strings in whatever order a decoder met them. Goes out: a table whose
strings are numbered by where they are first used, so that two decoders of one file give the same, bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from tracekit.model.events import (
    ABSENT,
    Bool,
    CollectiveArguments,
    EventTable,
    Int32,
    Int64,
    MemoryRecords,
    OperatorArguments,
    Track,
)

__all__ = ["COLLECTIVE_NUMBERS", "COLLECTIVE_TEXT", "DENSE", "LIMIT_NS", "MEMORY", "SHAPES", "build_table"]

LIMIT_NS = 1 << 62
"""Numbers as large as this are no time and no id."""

DENSE = {
    "name": np.int32,
    "category": np.int32,
    "track": np.int32,
    "start_ns": np.int64,
    "duration_ns": np.int64,
    "correlation": np.int64,
    "external_id": np.int64,
    "sequence_number": np.int64,
    "forward_thread": np.int64,
    "shape": np.int64,
}
"""Columns with a value for every event."""

COLLECTIVE_TEXT = ("collective", "dtype", "group_name", "group_description", "group_ranks")
COLLECTIVE_NUMBERS = ("in_elements", "out_elements", "group_size", "sequence")
SHAPES = ("input_shapes", "input_types", "concrete_inputs")
MEMORY = tuple(field.name for field in fields(MemoryRecords))

_FIRST_PIECE = 1024  # rows
_FARTHEST_NS = 24 * 3600 * 10**9  # from the median start; a recording of a day does not exist


def build_table(
    *,
    base_time_ns: int,
    strings: Sequence[str],
    tracks: Sequence[Track],
    dense: Mapping[str, np.ndarray],
    collectives: Mapping[str, np.ndarray],
    operators: Mapping[str, np.ndarray],
    memory: Mapping[str, np.ndarray],
    other_phases: Mapping[str, int],
) -> tuple[EventTable, int]:
    """The table, with `start_ns` on the wall clock, and how many events were dropped as out of range.

    `dense` holds the columns of `DENSE`, and `extra_args` where they were asked for; `collectives` and `operators` are
    sparse: `row`, and the columns of `COLLECTIVE_TEXT`, `COLLECTIVE_NUMBERS`, `SHAPES`; `memory` holds those of
    `MEMORY`. What is text indexes `strings`.
    """
    columns = dict(dense)
    columns["start_ns"] = columns["start_ns"] + base_time_ns
    sparse, operands = dict(collectives), dict(operators)
    outside = _out_of_range(columns["start_ns"], columns["duration_ns"])
    if len(outside):
        kept = np.ones(len(columns["start_ns"]), dtype=np.bool_)
        kept[outside] = False
        columns = {name: column[kept] for name, column in columns.items()}
        sparse, operands = _rows_left(sparse, kept), _rows_left(operands, kept)
    records = dict(memory)
    records["time_ns"] = records["time_ns"] + base_time_ns
    near = _near(records["time_ns"], columns["start_ns"])
    of_events = [name for name in ("name", "category", "extra_args") if name in columns]
    text = [(columns, of_events), (sparse, (*COLLECTIVE_TEXT, *SHAPES)), (operands, SHAPES)]
    used, place = _numbered([table[name] for table, names in text for name in names], strings)
    for table, names in text:
        for name in names:
            table[name] = np.take(place, table[name])
    events = EventTable(
        strings=used,
        tracks=list(tracks),
        collective_arguments=CollectiveArguments(**sparse),
        operator_arguments=OperatorArguments(**operands),
        memory=MemoryRecords(**{name: column[near] for name, column in records.items()}),
        other_phases=dict(sorted(other_phases.items())),
        **columns,
    )
    return events, len(outside) + int((~near).sum())


def _numbered(columns: Sequence[Int32], strings: Sequence[str]) -> tuple[list[str], Int32]:
    """The strings that are used, each once, in the order of their first uses, column after column; and where each of
    `strings` stands among them, with a last entry that answers for ABSENT.
    """
    used: dict[str, int] = {}
    place = np.full(len(strings) + 1, ABSENT, dtype=np.int32)
    met = np.zeros(len(strings) + 1, dtype=np.bool_)
    met[ABSENT] = True
    for column in columns:
        # What is in a column is mostly met near its beginning: the rest is looked over once, in ever longer pieces.
        begin, length = 0, _FIRST_PIECE
        while begin < len(column):
            piece = column[begin : begin + length]
            for index in dict.fromkeys(piece[~met.take(piece)].tolist()):
                place[index] = used.setdefault(strings[index], len(used))
                met[index] = True
            begin, length = begin + length, 2 * length
    return list(used), place


def _rows_left(columns: dict[str, Any], kept: np.ndarray) -> dict[str, Any]:
    """The columns of some events when only those in the mask `kept` are left of all."""
    left = kept[columns["row"]]
    return {
        name: ((np.cumsum(kept) - 1)[column] if name == "row" else column)[left] for name, column in columns.items()
    }


def _out_of_range(start_ns: Int64, duration_ns: Int64) -> Int64:
    """Rows a day away from the bulk of the recording: lost clocks, wrapped counters, starts of zero."""
    if not len(start_ns):
        return np.empty(0, dtype=np.int64)
    if start_ns.max() - start_ns.min() <= _FARTHEST_NS and duration_ns.max() <= _FARTHEST_NS:
        return np.empty(0, dtype=np.int64)
    return np.flatnonzero(~_near(start_ns, start_ns) | (duration_ns > _FARTHEST_NS))


def _near(time_ns: Int64, start_ns: Int64) -> Bool:
    """Mask [n] of the times that are less than a day from the bulk of `start_ns`, int64 [m]."""
    if not len(time_ns) or not len(start_ns):
        return np.ones(len(time_ns), dtype=np.bool_)
    center = np.partition(start_ns, len(start_ns) // 2)[len(start_ns) // 2]
    near: Bool = np.abs(time_ns - center) <= _FARTHEST_NS
    return near
