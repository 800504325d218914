"""The last step of both decoders: columns in file order to an `EventTable`.

Strings are numbered by their first use in the table, so that both decoders give the same table, bit for bit.
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
from tracekit.read.decode.written_arguments import counter_samples, stream_waits

LIMIT_NS = 1 << 62
"""Larger numbers are neither times nor ids."""

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
"""Columns with a value for each event."""

COLLECTIVE_TEXT = ("collective", "dtype", "group_name", "group_description", "group_ranks")
COLLECTIVE_NUMBERS = ("in_elements", "out_elements", "group_size", "sequence", "source_rank", "destination_rank")
SHAPES = ("input_shapes", "input_types", "concrete_inputs")
SYNCHRONISATION = "cuda_sync"
"""The category of what CUPTI records of waits, whose arguments say for which stream and event."""
MEMORY = tuple(field.name for field in fields(MemoryRecords))

OLD_CATEGORIES = {
    "Operator": "cpu_op",
    "Kernel": "kernel",
    "Memcpy": "gpu_memcpy",
    "Memset": "gpu_memset",
    "Runtime": "cuda_runtime",
}
"""What torch 1.8 called the categories of today. Annotations were operators, too: those of torch have a # inside."""

_FIRST_PIECE = 1024  # rows
_MAX_DISTANCE_NS = 24 * 3600 * 10**9  # from the median start; no recording is a day long


def build_table(
    *,
    base_time_ns: int,
    strings: Sequence[str],
    tracks: Sequence[Track],
    dense: Mapping[str, np.ndarray],
    collectives: Mapping[str, np.ndarray],
    operators: Mapping[str, np.ndarray],
    memory: Mapping[str, np.ndarray],
    synchronisations: Mapping[str, np.ndarray],
    counters: Mapping[str, np.ndarray],
    other_phases: Mapping[str, int],
) -> tuple[EventTable, int]:
    """Return the table, with `start_ns` on the wall clock, and how many events were dropped as out of range.

    Columns of text are indexes into `strings`, in any order.

    Args:
        base_time_ns: Is added to all starts.
        strings: All texts; two may be equal.
        tracks: The table's tracks.
        dense: The columns of `DENSE`; `extra_args` and `position` too if extra arguments are kept.
        collectives: `row`, and the columns of `COLLECTIVE_TEXT`, `COLLECTIVE_NUMBERS` and `SHAPES`.
        operators: `row`, and the columns of `SHAPES`.
        memory: The columns of `MEMORY`.
        synchronisations: `row` and `arguments`, their JSON, of events of the category `SYNCHRONISATION`.
        counters: `time_ns`, `process`, `name` and `arguments` of samples of counters.
        other_phases: As in the table, without counters.
    """
    columns = dict(dense)
    columns["category"], strings = _categories_of_today(columns["category"], columns["name"], strings)
    columns["start_ns"] = columns["start_ns"] + base_time_ns
    sparse, operands, waits = dict(collectives), dict(operators), dict(synchronisations)
    outside = out_of_range(columns["start_ns"], columns["duration_ns"])
    if len(outside):
        inside = np.ones(len(columns["start_ns"]), dtype=np.bool_)
        inside[outside] = False
        columns = {name: column[inside] for name, column in columns.items()}
        sparse, operands, waits = (_only_rows(table, inside) for table in (sparse, operands, waits))
    records = dict(memory)
    records["time_ns"] = records["time_ns"] + base_time_ns
    near = _near(records["time_ns"], columns["start_ns"])
    samples = counter_samples(counters, strings, base_time_ns)
    samples_near = _near(samples.time_ns, columns["start_ns"])
    of_events = [name for name in ("name", "category", "extra_args") if name in columns]
    texts = [(columns, of_events), (sparse, (*COLLECTIVE_TEXT, *SHAPES)), (operands, SHAPES)]
    used, new_index = _by_first_use([table[name] for table, names in texts for name in names], strings)
    for table, names in texts:
        for name in names:
            table[name] = np.take(new_index, table[name])
    events = EventTable(
        strings=used,
        tracks=list(tracks),
        collective_arguments=CollectiveArguments(**sparse),
        operator_arguments=OperatorArguments(**operands),
        memory=MemoryRecords(**{name: column[near] for name, column in records.items()}),
        stream_waits=stream_waits(waits, strings),
        counters=samples.rows(samples_near),
        other_phases=dict(sorted(other_phases.items())),
        **columns,
    )
    return events, len(outside) + int((~near).sum()) + int((~samples_near).sum())


def _categories_of_today(category: Int32, name: Int32, strings: Sequence[str]) -> tuple[Int32, Sequence[str]]:
    """Return the categories, int32 [n], of which old ones have the name of today, and the strings with these names."""
    old = [number for number, text in enumerate(strings) if text in OLD_CATEGORIES]
    if not old:
        return category, strings
    labels = np.isin(name, [number for number, text in enumerate(strings) if "#" in text[1:]])
    result = category.copy()
    for place, number in enumerate(old):
        result[category == number] = len(strings) + place
        if strings[number] == "Operator":
            result[(category == number) & labels] = len(strings) + len(old)
    return result, [*strings, *(OLD_CATEGORIES[strings[number]] for number in old), "user_annotation"]


def _by_first_use(columns: Sequence[Int32], strings: Sequence[str]) -> tuple[list[str], Int32]:
    """Return the distinct strings in the order of their first use, column after column, and the new index of each.

    The indexes are int32 [len(strings) + 1]; the last one is ABSENT, so that ABSENT maps to itself.
    """
    used: dict[str, int] = {}
    new_index = np.full(len(strings) + 1, ABSENT, dtype=np.int32)
    seen = np.zeros(len(strings) + 1, dtype=np.bool_)
    seen[ABSENT] = True
    for column in columns:
        # Most strings first occur near the beginning of a column. So the pieces get ever longer.
        begin, length = 0, _FIRST_PIECE
        while begin < len(column):
            piece = column[begin : begin + length]
            for index in dict.fromkeys(piece[~seen.take(piece)].tolist()):
                new_index[index] = used.setdefault(strings[index], len(used))
                seen[index] = True
            begin, length = begin + length, 2 * length
    return list(used), new_index


def _only_rows(columns: dict[str, Any], mask: np.ndarray) -> dict[str, Any]:
    """Return sparse columns without the events that are not in `mask` [n events], with new row numbers."""
    kept = mask[columns["row"]]
    return {
        name: ((np.cumsum(mask) - 1)[column] if name == "row" else column)[kept] for name, column in columns.items()
    }


def out_of_range(start_ns: Int64, duration_ns: Int64) -> Int64:
    """Return the rows that are a day away from the rest: lost clocks, wrapped counters, starts of zero."""
    if not len(start_ns):
        return np.empty(0, dtype=np.int64)
    if start_ns.max() - start_ns.min() <= _MAX_DISTANCE_NS and duration_ns.max() <= _MAX_DISTANCE_NS:
        return np.empty(0, dtype=np.int64)
    return np.flatnonzero(~_near(start_ns, start_ns) | (duration_ns > _MAX_DISTANCE_NS))


def _near(time_ns: Int64, start_ns: Int64) -> Bool:
    """Return a mask [n] of the times that are less than a day from the median of `start_ns`, int64 [m]."""
    if not len(time_ns) or not len(start_ns):
        return np.ones(len(time_ns), dtype=np.bool_)
    center = np.partition(start_ns, len(start_ns) // 2)[len(start_ns) // 2]
    near: Bool = np.abs(time_ns - center) <= _MAX_DISTANCE_NS
    return near
