"""A table of any tracer with the columns of `columns.OPERATIONS`, by these or usual other names."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from tracekit.analysis.operation_tables.formats.names import COLUMN_NAMES, SHOWN_COLUMNS, UNITS, column_of, kind_of
from tracekit.analysis.operation_tables.formats.numbers import LARGEST, shortened
from tracekit.analysis.operation_tables.formats.places import (
    derive_replicas,
    derive_stages,
    derive_steps,
    number_microbatches,
)
from tracekit.analysis.operation_tables.formats.table_limits import HIGHEST_NUMBER, require_limits
from tracekit.analysis.operation_tables.formats.times import UnreadableValueError, integers, nanoseconds
from tracekit.analysis.operation_tables.operations import COMPUTE, KINDS, RECEIVES, SENDS, Operations, OperationTable
from tracekit.errors import InputError
from tracekit.model.events import ABSENT, Bool, Int32, Int64

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["read_plain_table"]

_NEED_MICROBATCH = (*COMPUTE, *RECEIVES, *SENDS)
_DEFAULT_UNIT = "s"
_IN_SECONDS = ("start_ts",)  # as StragglerAnalysis names its seconds


def read_plain_table(frame: pd.DataFrame, path: str, *, unit: str | None = None, first_line: int = 2) -> OperationTable:
    """Return the operations of a table.

    unit: of times whose column names none; seconds by default. first_line: of the rows in the file, for errors.

    Raises InputError that names the column, or the line, and what to write.
    """
    columns = {name: column_of(name, frame.columns) for name in COLUMN_NAMES}
    _require(columns, frame, path)
    start = columns["start"]
    assert start is not None
    notes = [_unit_note(start[0])] if start[1] is None and unit is None and start[0] not in _IN_SECONDS else []
    if not len(frame):
        raise InputError(f"{path}: no operations in it", hint="record at least one step")

    def read(name: str, convert: Callable[[pd.Series], Int64]) -> Int64 | None:
        found = columns[name]
        if found is None:
            return None
        try:
            return convert(frame[found[0]])
        except UnreadableValueError as error:
            where = f"line {error.row + first_line}, column {found[0]}"
            raise InputError(f"{path}: {where}: {error}", hint=_WRITE[name]) from None

    def read_time(name: str) -> Int64 | None:
        found = columns[name]
        if found is None:
            return None
        return read(name, lambda values: nanoseconds(values, found[1] or unit or _DEFAULT_UNIT))

    kind = _kinds(frame, columns, path, first_line)
    start_ns, end_ns, duration_ns = read_time("start"), read_time("end"), read_time("duration")
    assert start_ns is not None
    if end_ns is None:
        assert duration_ns is not None
        end_ns = start_ns + duration_ns
    if (end_ns < start_ns).any():
        line = int(np.flatnonzero(end_ns < start_ns)[0]) + first_line
        raise InputError(f"{path}: line {line}: the operation ends before it starts", hint="are the columns swapped?")
    missing = {"rank": None, "stage": ABSENT, "chunk": 0, "replica": None, "step": None, "microbatch": ABSENT}
    most = dict.fromkeys(missing, HIGHEST_NUMBER) | {"step": LARGEST, "microbatch": LARGEST}
    given = {name: read(name, partial(integers, missing=value, most=most[name])) for name, value in missing.items()}
    microbatch = given["microbatch"]
    assert microbatch is not None
    needs = np.isin(kind, [KINDS.index(name) for name in _NEED_MICROBATCH])
    if (needs & (microbatch < 0)).any():
        line = int(np.flatnonzero(needs & (microbatch < 0))[0]) + first_line
        raise InputError(f"{path}: line {line}: a {_name(kind[line - first_line])} without microbatch", hint=_WRITE_MB)
    rank = given["rank"] if given["rank"] is not None else given["stage"]
    assert rank is not None
    if (rank < 0).any():
        line = int(np.flatnonzero(rank < 0)[0]) + first_line
        raise InputError(f"{path}: line {line}: it names no rank", hint="number ranks from 0")
    stage = given["stage"] if given["stage"] is not None else derive_stages(rank, given["replica"], given["chunk"])
    stage = _of_rank_where_missing(rank, stage)
    replica = given["replica"] if given["replica"] is not None else derive_replicas(rank, stage)
    computes = np.isin(kind, [KINDS.index(name) for name in COMPUTE])
    step = given["step"]
    if step is None:
        step = derive_steps(rank, stage, microbatch, kind, start_ns, computes)
    microbatch, renumbered = number_microbatches(step, microbatch)
    if renumbered:
        notes.append("microbatches are numbered from 0 in each step")
    kind = _split_backwards(kind, np.stack((rank, step, stage, microbatch)))
    operations = Operations(
        rank=rank,
        replica=replica,
        stage=stage,
        step=step,
        microbatch=microbatch,
        kind=kind,
        start_ns=start_ns,
        end_ns=end_ns,
    )
    require_limits(operations, path)
    return OperationTable(
        path=path, source="a table of operations", operations=operations.in_order(), measured_ns={}, notes=tuple(notes)
    )


_WRITE_MB = "forwards, backwards and messages need the number of their microbatch"
_WRITE = dict.fromkeys(COLUMN_NAMES, "write an integer") | dict.fromkeys(("start", "end", "duration"), "write a number")


def _require(columns: dict[str, tuple[str, str | None] | None], frame: pd.DataFrame, path: str) -> None:
    missing = [name for name in ("kind", "start") if columns[name] is None]
    if columns["end"] is None and columns["duration"] is None:
        missing.append("end")
    if columns["rank"] is None and columns["stage"] is None:
        missing.insert(0, "rank")
    if columns["microbatch"] is None:
        missing.append("microbatch")
    if missing:
        there = ", ".join(map(str, frame.columns[:SHOWN_COLUMNS])) or "none"
        raise InputError(
            f"{path}: no column {', '.join(missing)}",
            hint=f"it has {there}; write rank, kind, microbatch, start_ms and end_ms (docs/operation-tables.md)",
        )


def _kinds(frame: pd.DataFrame, columns: dict[str, tuple[str, str | None] | None], path: str, first_line: int) -> Int32:
    found = columns["kind"]
    assert found is not None
    names = [str(value) for value in frame[found[0]].tolist()]  # an array of texts would repeat a long one
    known = {name: kind_of(name) for name in dict.fromkeys(names)}
    unknown = next((name for name, kind in known.items() if kind is None), None)
    if unknown is not None:
        what = f"line {names.index(unknown) + first_line}: unknown kind {shortened(unknown)!r}"
        raise InputError(f"{path}: {what}", hint=f"the kinds are {', '.join(KINDS)}")
    codes = {name: KINDS.index(kind) for name, kind in known.items() if kind is not None}
    return np.array([codes[name] for name in names], dtype=np.int32)


def _name(kind: int) -> str:
    name = KINDS[kind]
    return {"F": "forward", "B": "backward", "I": "backward", "W": "backward"}.get(name, name)


def _unit_note(column: str) -> str:
    units = ", ".join(f"{column}_{unit}" for unit in UNITS)
    return f"times are taken as seconds, as column {column} names no unit: call it {units}, or give --time-unit"


def _of_rank_where_missing(rank: Int64, stage: Int64) -> Int64:
    """Return stages, int64 [n], with the first stage of the rank where an operation names none."""
    if (stage >= 0).all():
        return stage
    ranks, place = np.unique(rank, return_inverse=True)
    none = np.iinfo(np.int64).max
    first = np.full(len(ranks), none)
    np.minimum.at(first, place, np.where(stage >= 0, stage, none))
    return np.where(stage >= 0, stage, np.where(first == none, 0, first)[place])


def _split_backwards(kind: Int32, identity: Int64) -> Int32:
    """Return kinds in which a backward is that of inputs, I, if its rank has the weights' W of the same microbatch.

    identity: int64 [4, n], the rank, step, stage and microbatch of each operation.
    """
    weights, backward = kind == KINDS.index("W"), kind == KINDS.index("B")
    if not weights.any() or not backward.any():
        return kind
    number = np.unique(identity, axis=1, return_inverse=True)[1].reshape(-1)
    split: Bool = backward & np.isin(number, number[weights])
    return np.where(split, KINDS.index("I"), kind).astype(np.int32)
