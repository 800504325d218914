"""The columns of the traces of ByteDance's StragglerAnalysis: one operation of Megatron a row.

* `dp_rank` (replica of the model), `stage`, `rank`, `step`, `optype`;
* `start_ts` and `duration`, in seconds;
* `seq_id`: number among the operations of that type on a rank in a step, by start;
* `mc` and `gmc`: chunk of the model, numbered within the stage and within the model, or -1;
* `mb_id`: microbatch, or -1.

Unlike other tables, they list every send, receive and collective. `megatron_graph` says what waits for what.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracekit.analysis.operation_tables.formats.numbers import LARGEST, shortened
from tracekit.analysis.operation_tables.formats.places import number_microbatches
from tracekit.analysis.operation_tables.formats.table_limits import (
    HIGHEST_NUMBER,
    require_limits,
    require_sizes,
    require_within,
)
from tracekit.analysis.operation_tables.graph.megatron_dependencies import OPTYPES
from tracekit.analysis.operation_tables.operations import KINDS, Operations, OperationTable
from tracekit.errors import InputError
from tracekit.model.events import Float64, Int64

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["COLUMNS", "INTEGERS", "check_operations", "chunks_of_model", "computations"]

COLUMNS = ("dp_rank", "stage", "rank", "step", "optype", "start_ts", "duration", "seq_id", "mc", "gmc", "mb_id")
INTEGERS = tuple(name for name in COLUMNS if name not in {"optype", "start_ts", "duration"})
_PLACES = ("dp_rank", "stage", "rank", "mc", "gmc")
_LONGEST_S = 1e9  # in float64 seconds, longer times lose microseconds


def check_operations(table: pd.DataFrame, name: str) -> pd.DataFrame:
    """Return the table with int64 numbers, and with nanoseconds in the float64 columns `start_ns` and `duration_ns`.

    name: of the file, for errors. Raises InputError when a value cannot be.
    """

    def error(what: str, hint: str) -> InputError:
        return InputError(f"{name}: {what}", hint=hint)

    if missing := [column for column in COLUMNS if column not in table.columns]:
        raise error(f"no column {', '.join(missing)}", f"the columns are {', '.join(COLUMNS)}")
    if not len(table):
        raise error("no operations in it", "record at least one step")
    table = table[list(COLUMNS)].reset_index(drop=True)
    for column in (*INTEGERS, "start_ts", "duration"):
        values = _numbers(table, column)
        if values is None:
            raise error(f"column {column} holds something that is no number", "leave no field empty")
        if not np.isfinite(values).all():
            row = int(np.flatnonzero(~np.isfinite(values))[0])
            raise error(f"{column} of row {row} is {values[row]}", "leave no field empty")
        if column in INTEGERS:
            if (values != np.round(values)).any() or (np.abs(values) > LARGEST).any():
                raise error(f"column {column} holds a number that is no integer", "number from 0; -1: none")
            if column in _PLACES and (values > HIGHEST_NUMBER).any():
                raise error(f"{column} is above {HIGHEST_NUMBER}", "number from 0")
            table[column] = values.astype(np.int64)
        else:
            if (np.abs(values) > _LONGEST_S).any():
                raise error(f"{column} is beyond {_LONGEST_S:.0e} s", "give seconds from the start of the step")
            table[column.split("_")[0] + "_ns"] = values * 1e9
    for column, lowest in (("dp_rank", 0), ("stage", 0), ("rank", 0), ("seq_id", 0), ("mc", -1), ("gmc", -1)):
        if (table[column] < lowest).any():
            raise error(f"{column} is below {lowest}", "number from 0")
    require_sizes(name, *(table[column].to_numpy(dtype=np.int64) for column in ("rank", "step", "stage")))
    for column in ("stage", "gmc"):
        require_within(name, "table_stages", int(table[column].max()) + 1)
    if (table["duration_ns"] < 0).any():
        row = int(np.flatnonzero(table["duration_ns"] < 0)[0])
        raise error(f"duration of row {row} is negative", "give seconds")
    if unknown := sorted({str(name) for name in table["optype"].tolist()} - set(OPTYPES)):
        names = ", ".join(shortened(name) for name in unknown[:3])
        raise error(f"unknown optype {names}", f"the types are {', '.join(OPTYPES)}")
    table["optype"] = table["optype"].astype(str)
    if table.duplicated(["step", "dp_rank", "stage", "optype", "seq_id"]).any():
        row = int(np.flatnonzero(table.duplicated(["step", "dp_rank", "stage", "optype", "seq_id"]))[0])
        what = f"{table['optype'][row]} {table['seq_id'][row]} of rank {table['rank'][row]}, step {table['step'][row]}"
        raise error(
            f"{what}, is there twice", "number operations of a type by `seq_id`, and ranks by dp_rank and stage"
        )
    places = table[["rank", "dp_rank", "stage"]].drop_duplicates()
    if places["rank"].duplicated().any() or places.duplicated(["dp_rank", "stage"]).any():
        raise error("ranks and (dp_rank, stage) do not correspond", "give each rank one dp_rank and stage")
    return table


def _numbers(table: pd.DataFrame, column: str) -> Float64 | None:
    try:
        values = table[column].replace("", None)  # an empty field of a CSV file
        return values.to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError):
        return None


def chunks_of_model(table: pd.DataFrame) -> Int64:
    """Return the chunk in the model of each operation, int64 [n]: `gmc`, else by its stage and chunk in the stage."""
    stage, chunk, named = (table[name].to_numpy(dtype=np.int64) for name in ("stage", "mc", "gmc"))
    stages = int(stage.max(initial=0)) + 1
    return np.where(named >= 0, named, np.maximum(chunk, 0) * stages + stage)


def computations(table: pd.DataFrame, path: str) -> OperationTable:
    """Return the forwards and backwards of a checked table, from which bubbles follow."""
    rows = table[table["optype"].isin(["forward-compute", "backward-compute"])].reset_index(drop=True)
    columns = {name: rows[name].to_numpy(dtype=np.int64) for name in ("rank", "dp_rank", "step", "mb_id")}
    kind = np.where(rows["optype"] == "forward-compute", KINDS.index("F"), KINDS.index("B")).astype(np.int32)
    stage = chunks_of_model(rows)
    start_ns, duration_ns = (rows[name].to_numpy(dtype=np.float64) for name in ("start_ns", "duration_ns"))
    microbatch = columns["mb_id"].copy()
    if (microbatch < 0).any():  # by order
        place = rows.assign(of=stage).sort_values("start_ns", kind="stable").groupby(["step", "rank", "optype", "of"])
        microbatch = place.cumcount().sort_index().to_numpy(dtype=np.int64)
    microbatch, _ = number_microbatches(columns["step"], microbatch)
    operations = Operations(
        rank=columns["rank"],
        replica=columns["dp_rank"],
        stage=stage,
        step=columns["step"],
        microbatch=microbatch,
        kind=kind,
        start_ns=np.rint(start_ns).astype(np.int64),
        end_ns=np.rint(start_ns + duration_ns).astype(np.int64),
    )
    require_limits(operations, path)
    return OperationTable(path=path, source="Megatron's operations", operations=operations.in_order(), measured_ns={})
