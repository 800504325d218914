"""Tables in CSV or Parquet files, with the columns that docs/operation-tables.md lists, by these or usual other names.

Names are compared in small letters, with `_` for blanks and `-`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import fsspec
import numpy as np
import pandas as pd

from tracekit.errors import InputError
from tracekit.limits import limits
from tracekit.model.events import ABSENT, Bool
from tracekit.model.spans import ACTION_KINDS

COMPUTE = ACTION_KINDS
"""Forward F, backward B, and the halves of a split backward: gradients of inputs I and of weights W."""
COLLECTIVES = ("all-reduce", "reduce-scatter", "all-gather")
OTHERS = (*COLLECTIVES, "optimizer", "data", "other")
KINDS = (*COMPUTE, *OTHERS, "message")
_IDENTITY = ["step", "rank", "start_ns", "end_ns", "microbatch", "kind"]
COLUMN_NAMES: Mapping[str, tuple[str, ...]] = {
    "rank": ("global_rank", "device", "gpu", "worker"),
    "kind": ("op", "operation", "optype", "op_type", "type", "name", "phase", "direction"),
    "microbatch": ("micro_batch", "microbatch_id", "micro_batch_id", "mb", "mb_id"),
    "start": ("begin", "start_time", "start_ts", "ts"),
    "end": ("stop", "end_time", "end_ts"),
    "duration": ("dur", "elapsed"),
    "stage": ("stage_id", "pp_stage", "virtual_stage", "gmc"),
    "chunk": ("model_chunk", "chunk_id", "vpp_rank", "mc"),
    "step": ("iteration", "iter", "step_id"),
    "replica": ("dp_rank", "dp", "data_parallel_rank"),
}
"""Other names of each column. A name of a time may end in its unit: `start_us`."""
KIND_NAMES = {
    "F": "forward fwd fw fp forward_compute forward_step forward_pass forward_warmup",
    "B": "backward bwd bw bp backward_compute backward_step backward_pass backward_cooldown full_backward bw_full",
    "I": "backward_input input_backward b_input bwd_input dgrad backward_b",
    "W": "backward_weight weight_backward b_weight bwd_weight wgrad backward_w weight",
    "message": "forward_recv recv_forward recv_f recv_activation backward_recv recv_backward recv_b recv_grad "
    "forward_send send_forward send_f send_activation backward_send send_backward send_b send_grad",
    "all-reduce": "allreduce grads_all_reduce grad_sync all_grads_sync layernorm_grads_all_reduce reduce_grads "
    "embedding_grads_all_reduce separate_grads_all_reduce",
    "reduce-scatter": "reducescatter grads_reduce_scatter",
    "all-gather": "allgather params_all_gather",
    "optimizer": "optimizer_step opt optimizer_clip_main_grad update",
    "data": "batch_generator dataloader load load_data data_loading",
    "other": "gc checkpoint evaluation logging idle_work",
}
"""Other names of each kind."""
_LARGEST = 2**31 - 1
"""The largest number of a rank, stage, step and so on."""
_UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
_TIMES = ("start", "end", "duration")
_LONGEST_NS = 4 * 10**18
"""In ns since 1970 this is the year 2096: later times are in another unit."""
_SEPARATORS = ",;\t|"
_SHOWN_COLUMNS = 12


def _simplified(name: object) -> str:
    return str(name).strip().lower().replace("-", "_").replace(" ", "_")


_KIND_OF = {_simplified(name): kind for kind, names in KIND_NAMES.items() for name in (kind, *names.split())}


@dataclass(frozen=True, kw_only=True, eq=False)
class OperationTable:
    """A table that was read.

    Attributes:
        path: as the user typed it.
        source: what kind of file it is, for a sentence.
        operations: by step, rank and start. Columns of int64: `rank`, `replica` (of the model), `stage`, `step`,
            `microbatch` (or -1), `start_ns`, `end_ns`. `kind` is one of `KINDS`. The stage of what is no forward,
            backward or message is the first one of its rank.
        notes: what was assumed or left out.
    """

    path: str
    source: str
    operations: pd.DataFrame
    notes: tuple[str, ...] = ()


def in_order(operations: pd.DataFrame) -> pd.DataFrame:
    """Return the operations by step, rank and start, with steps that follow one another.

    Where the times of each step begin anew, each step begins where the one before it ended.
    """
    spans = operations.groupby(["rank", "step"]).agg(start_ns=("start_ns", "min"), end_ns=("end_ns", "max"))
    before_ns = spans["end_ns"].groupby("rank").shift(fill_value=spans["start_ns"].min())
    if (spans["start_ns"] < before_ns).any():
        steps = spans.groupby("step").agg({"start_ns": "min", "end_ns": "max"})
        begins_ns = (steps["end_ns"] - steps["start_ns"]).cumsum().shift(fill_value=0)
        moved_ns = operations["step"].map(begins_ns - steps["start_ns"])
        times = {name: operations[name] + moved_ns for name in ("start_ns", "end_ns")}
        operations = operations.assign(**times)
    return operations.sort_values(_IDENTITY, ignore_index=True)


def require_size(path: object, count: int) -> None:
    """Raise InputError if a table has more operations than its limit allows."""
    if count > limits().table_operations:
        raise InputError(
            f"{path}: over {limits().table_operations:,} operations ({limits().named('table_operations')})",
            hint="give fewer steps or ranks, or set TRACEKIT_LIMITS=table_operations=N",
        )


def read_frame(path: Path) -> pd.DataFrame:
    """Return the rows of a Parquet file, or of a CSV file as texts. Raises InputError when it cannot be read."""
    try:
        frame = pd.read_parquet(path) if path.name.lower().endswith(".parquet") else _read_csv(path)
    except (OSError, EOFError, ValueError, ImportError) as error:
        what = f"it cannot be read: {' '.join(str(error).split())[:200]}"
        raise InputError(
            f"{path}: {what}", hint="give a CSV file, or Parquet (pip install 'torch-tracekit[parquet]')"
        ) from None
    require_size(path, len(frame))
    if not len(frame):
        raise InputError(f"{path}: no operations in it", hint="record at least one step")
    return frame


def _read_csv(path: Path) -> pd.DataFrame:
    with fsspec.open(str(path), "rt", compression="infer", encoding="utf-8-sig") as stream:
        first = next((line for line in stream if line.strip()), "")
        stream.seek(0)
        return pd.read_csv(
            stream,
            sep=max(_SEPARATORS, key=first.count),
            dtype=str,
            keep_default_na=False,
            skipinitialspace=True,
            index_col=False,
            nrows=limits().table_operations + 1,
        )


class TableColumns:
    """The columns of a file, by the names of the documentation. A column of its own name comes before other names."""

    def __init__(self, frame: pd.DataFrame, path: str) -> None:
        self._frame, self.path = frame.reset_index(drop=True), path
        self._columns: dict[str, str] = {}
        self.units: dict[str, str] = {}
        by_name = {_simplified(name): name for name in reversed(list(frame.columns))}
        for column, names in COLUMN_NAMES.items():
            for unit in ("", *_UNITS) if column in _TIMES else ("",):
                for name in (column, *names):
                    present = by_name.get(f"{name}_{unit}" if unit else name)
                    if present is not None and column not in self._columns:
                        self._columns[column], self.units[column] = present, unit

    def __contains__(self, column: str) -> bool:
        return column in self._columns

    def require(self) -> None:
        """Raise InputError if a column lacks without which there are no operations."""
        needed = (("rank", "stage"), ("kind",), ("microbatch",), ("start",), ("end", "duration"))
        missing = [names[0] for names in needed if not any(name in self for name in names)]
        if missing:
            there = ", ".join(map(str, self._frame.columns[:_SHOWN_COLUMNS]))
            hint = f"it has {there}; write rank, kind, microbatch, start_ms and end_ms (docs/operation-tables.md)"
            raise InputError(f"{self.path}: no column {', '.join(missing)}", hint=hint)

    def values(self, column: str) -> pd.Series:
        """Return a column as it is in the file, also one that the documentation does not name."""
        return self._frame[self._columns.get(column, column)]

    def integers(self, column: str, missing: int | None = None, *, least: int = ABSENT) -> pd.Series:
        """Return whole numbers, int64. missing: for empty fields. Raises InputError that names the first wrong one."""
        values = self.values(column)
        numbers = pd.to_numeric(values, errors="coerce")
        if missing is not None:
            numbers = numbers.where(values.notna() & (values.astype(str).str.strip() != ""), missing)
        numbers = numbers.astype(np.float64)
        wrong = (numbers != numbers.round()) | ~numbers.between(least, _LARGEST)
        self.refuse(wrong, column, "is not a whole number in range")
        return numbers.astype(np.int64)

    def nanoseconds(self, column: str, unit: str | None = None) -> pd.Series:
        """Return times in ns, int64, of which every digit of a text counts. unit: where the name has none; else s."""
        scale = _UNITS[self.units.get(column) or unit or "s"]
        result = [_time_ns(value, scale) for value in self.values(column).tolist()]
        self.refuse(pd.Series([value is None for value in result]), column, "is not a time in range")
        return pd.Series(result, dtype=np.int64)

    def refuse(self, wrong: pd.Series | Bool, column: str, what: str) -> None:
        """Raise InputError that names the first line that is wrong, and its value of a column, if there is one."""
        if np.any(wrong):
            row = int(np.flatnonzero(wrong)[0])
            name, value = self._columns.get(column, column), str(self.values(column).iloc[row])[:40]
            where = f"line {row + 2}, column {name}"
            raise InputError(f"{self.path}: {where}: {value!r} {what}", hint="see docs/operation-tables.md")


def _time_ns(value: object, scale: int) -> int | None:
    """Return a time in ns, rounded to the nearest; None for what is none."""
    try:
        time_ns = Decimal(value) * scale  # type: ignore[arg-type]
        return int(time_ns.to_integral_value()) if abs(time_ns) <= _LONGEST_NS else None
    except (ArithmeticError, TypeError, ValueError):
        return None


def read_table(frame: pd.DataFrame, path: str, unit: str | None = None) -> OperationTable:
    """Return the operations of a table. unit: of times whose column names none; seconds by default.

    Raises InputError that names the column, or the line, that is wrong.
    """
    columns = TableColumns(frame, path)
    columns.require()
    kind = columns.values("kind").map(_simplified).map(_KIND_OF.get)
    columns.refuse(kind.isna(), "kind", f"is no kind; the kinds are {', '.join(KINDS)}")
    start_ns = columns.nanoseconds("start", unit)
    ends = "end" in columns
    end_ns = columns.nanoseconds("end", unit) if ends else start_ns + columns.nanoseconds("duration", unit)
    columns.refuse(end_ns < start_ns, "end" if ends else "duration", "ends before it starts")
    table = pd.DataFrame({"kind": kind.to_numpy(), "start_ns": start_ns, "end_ns": end_ns})
    for name, missing in (("rank", None), ("stage", ABSENT), ("chunk", 0), ("replica", None), ("step", None)):
        if name in columns:
            table[name] = columns.integers(name, missing).to_numpy()
    table["microbatch"] = columns.integers("microbatch", ABSENT).to_numpy()
    needs = table["kind"].isin(COMPUTE) & (table["microbatch"] < 0)
    columns.refuse(needs, "microbatch", "is no microbatch: forwards and backwards need their number")
    if "rank" not in table:
        table["rank"] = table["stage"]
    columns.refuse(table["rank"] < 0, "rank" if "rank" in columns else "stage", "is no rank")
    if "stage" in table:
        stages = table.loc[table["kind"].isin(COMPUTE), "stage"].nunique()
        columns.refuse(table["stage"] >= stages, "stage", f"is no stage: {stages} stages are numbered from 0")
    table = table[table["kind"] != "message"].reset_index(drop=True)
    given = table["microbatch"].copy()
    table = in_order(_with_stages(table))
    notes = []
    if not (columns.units["start"] or unit or "start_ts" in frame):
        named = f"{columns.values('start').name}_ms"
        notes.append(f"times are taken as seconds: call the column {named}, for instance, or give --time-unit")
    if sorted(given) != sorted(table["microbatch"]):
        notes.append("microbatches are numbered from 0 in each step")
    return OperationTable(path=path, source="a table of operations", operations=table, notes=tuple(notes))


def _with_stages(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with what it leaves out and its rows tell: stages, replicas, steps, kinds of backwards."""
    if "stage" not in table:  # the second stages of all ranks follow the first ones, and so on (interleaved 1F1B)
        ranks = table.groupby(table["replica"] if "replica" in table else np.zeros(len(table)))["rank"]
        pipeline_rank = ranks.rank("dense").astype(np.int64) - 1
        table["stage"] = pipeline_rank + ranks.transform("nunique") * table.get("chunk", 0)
    first = table[table["stage"] >= 0].groupby("rank")["stage"].min()
    of_rank = table["rank"].map(first).fillna(0).astype(np.int64)
    table["stage"] = table["stage"].where(table["stage"] >= 0, of_rank)
    if "replica" not in table:  # the n-th of the ranks with equal stages is in the n-th
        stages = table.groupby("rank")["stage"].agg(lambda values: str(sorted(set(values))))
        table["replica"] = table["rank"].map(stages.groupby(stages).cumcount())
    if "step" not in table:
        table["step"] = _steps(table)
    named = table["microbatch"] >= 0
    number = table[named].groupby("step")["microbatch"].rank("dense").astype(np.int64) - 1
    table.loc[named, "microbatch"] = number
    identity = pd.MultiIndex.from_frame(table[["rank", "step", "stage", "microbatch"]])
    split = (table["kind"] == "B") & identity.isin(identity[table["kind"] == "W"])
    table.loc[split, "kind"] = "I"
    return table.drop(columns="chunk", errors="ignore")


def _steps(table: pd.DataFrame) -> pd.Series:
    """Return the step of each operation: how often its rank ran the same before.

    What computes no microbatch belongs to the step of the last one before it that does.
    """
    computes = table[table["kind"].isin(COMPUTE)].sort_values("start_ns", kind="stable")
    step = computes.groupby(["rank", "stage", "kind", "microbatch"]).cumcount()
    ordered = table.assign(step=step).sort_values(["rank", "start_ns", "step"])  # unknown steps behind known ones
    known = ordered.groupby("rank")["step"].ffill()
    return known.groupby(ordered["rank"]).bfill().fillna(0).astype(np.int64)
