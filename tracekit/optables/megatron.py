"""Logs of Megatron-LM, and traces of MegaScan (MegatronApp), which times its operations.

Timers of Megatron-LM, as `--timing-log-option all --timing-log-level 2` prints them.

    iteration        3/     500 | ... | elapsed time per iteration (ms): 812.4 | ... | global batch size:    64 | ...
    times across ranks (ms):
      forward-compute:
         rank  0: 201.34
         rank  1: 198.80

Timers are sums: how long a rank was in its forwards, and in its backwards, in an iteration. They do not say when, nor
how long each microbatch took. So the order of a step is that of a **model**: Megatron's schedule for the sizes that the
log prints with its arguments, or that are given, with microbatches of a rank that take equally long, and transfers that
take no time. The report says so. What a model cannot show is what differs within an iteration.

MegaScan writes a file a rank, `benchmark-data-{d}-pipeline-{p}-tensor-{t}.json`: `iteration` begins (`ph` B) and ends
(E) each traced iteration. The records between have `rel_ts` in ns since the begin of the iteration on that rank. A
forward or backward is a B and an E; the E has `microbatch` and `model_chunk`. The iterations of all ranks count as
begun at the same time, as MegaScan takes them.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tracekit.analysis.pipeline.bubble_causes import build_pipeline_replay
from tracekit.analysis.pipeline.layout.schedules import order_of_schedule
from tracekit.analysis.pipeline.transfers import edges_between_ranks
from tracekit.errors import InputError
from tracekit.model.events import ABSENT
from tracekit.model.spans import ACTION_KINDS
from tracekit.optables.operation_table import COLLECTIVES, COMPUTE, OperationTable, in_order, kind_of, require_size

__all__ = ["read_megascan", "read_timer_log"]

_TIMERS = {"F": "forward-compute", "B": "backward-compute"}
_ITERATION = re.compile(r"\biteration\s+(\d{1,15})\s*/\s*\d+\s*\|")
_ELAPSED = re.compile(r"elapsed time per iteration \(ms\):\s*(\d+\.?\d*)")
_BATCH = re.compile(r"global batch size:\s*(\d+)")
_ARGUMENT = re.compile(r"\b(\w+_size) \.{3,} (\d{1,9})\s*$")
_TIMER = re.compile(r"(?:^|[\s\]:])([a-z][a-z0-9]*(?:-[a-z0-9]+)+|optimizer):\s*$")
_RANK_FILE = re.compile(r"benchmark-data-(\d{1,9})-pipeline-(\d{1,9})-tensor-(\d{1,9})\.json")
_KEPT = (*COMPUTE, *COLLECTIVES, "optimizer")
_OF_RANK = re.compile(r"\brank\s+(\d{1,9}):\s*(\d+\.?\d*)\s*$")


@dataclass(kw_only=True)
class _Iteration:
    number: int
    elapsed_ms: float | None
    timers: dict[str, dict[int, float]] = field(default_factory=lambda: defaultdict(dict))


def read_timer_log(path: Path, pipeline_ranks: int | None = None, microbatches: int | None = None) -> OperationTable:
    """Return the operations of a log, in the order of Megatron's schedule; sizes that are not given are as it says.

    Raises InputError when the log names no ranks, lacks the timers of forwards and backwards, or does not say the sizes
    that the order follows from.
    """
    iterations, sizes = _parse(path)
    lacking = [name for name in _TIMERS.values() if not all(name in one.timers for one in iterations)]
    if lacking or not iterations:
        what = f"no timer {lacking[0]}" if lacking else "no timers that name a rank in it"
        raise InputError(f"{path}: {what}", hint="log with --timing-log-option all --timing-log-level 2")
    ranks = 1 + max(rank for one in iterations for rank in one.timers[_TIMERS["F"]])
    pipeline_ranks = pipeline_ranks or sizes.get("pipeline_model_parallel_size")
    if pipeline_ranks is None:
        raise InputError(f"{path}: it does not say how many ranks a pipeline has", hint="give --pipeline-ranks")
    together = sizes.get("tensor_model_parallel_size", 1) * sizes.get("context_parallel_size", 1)
    replicas, rest = divmod(ranks, pipeline_ranks * together)
    if rest:
        what = f"{ranks} ranks are no multiple of {pipeline_ranks} pipeline and {together} tensor-parallel ranks"
        raise InputError(f"{path}: {what}", hint="give --pipeline-ranks")
    if microbatches is None and {"global_batch_size", "micro_batch_size"} <= sizes.keys():
        microbatches = sizes["global_batch_size"] // (sizes["micro_batch_size"] * replicas)
    if microbatches is None:
        raise InputError(f"{path}: it does not say how many microbatches a step has", hint="give --microbatches")
    chunks = sizes.get("virtual_pipeline_model_parallel_size", 1)
    require_size(path, len(iterations) * replicas * pipeline_ranks * 2 * microbatches * chunks)
    schedule = f"interleaved 1F1B, {chunks} stages a rank" if chunks > 1 else "1F1B"
    note = (
        f"timers are sums a rank and iteration: the order within a step is a model ({schedule}, {microbatches} "
        "microbatches of equal length, transfers take no time)"
    )
    notes = [note]
    if together > 1:
        notes.append(f"of each {together} tensor-parallel ranks the slowest counts: they run together")
    return OperationTable(
        path=str(path),
        source="timers of Megatron-LM",
        operations=in_order(_modelled(path, iterations, (pipeline_ranks, replicas, together), chunks, microbatches)),
        measured_ns={one.number: round(one.elapsed_ms * 1e6) for one in iterations if one.elapsed_ms is not None},
        modelled=True,
        notes=tuple(notes),
    )


def _parse(path: Path) -> tuple[list[_Iteration], dict[str, int]]:
    """Return the iterations whose timers name ranks, and the sizes that Megatron printed."""
    sizes: dict[str, int] = {}
    iterations: list[_Iteration] = []
    timer: str | None = None
    with path.open(errors="replace") as lines:
        for line in lines:
            if match := _ITERATION.search(line):
                elapsed, batch, timer = _ELAPSED.search(line), _BATCH.search(line), None
                iterations.append(_Iteration(number=int(match[1]), elapsed_ms=float(elapsed[1]) if elapsed else None))
                sizes |= {"global_batch_size": int(batch[1])} if batch else {}
            elif iterations and timer is not None and (match := _OF_RANK.search(line)):
                iterations[-1].timers[timer][int(match[1])] = float(match[2])
            elif match := _TIMER.search(line):
                timer = match[1]
            elif match := _ARGUMENT.search(line):
                sizes.setdefault(match[1], max(int(match[2]), 1))
    return [one for one in iterations if one.timers], sizes


def _modelled(
    path: Path, iterations: list[_Iteration], grid: tuple[int, int, int], chunks: int, microbatches: int
) -> pd.DataFrame:
    """Return the operations of a schedule whose forwards and backwards of a rank take equally long.

    grid: pipeline ranks, replicas, and ranks that run a stage together. Megatron numbers ranks by the last first.
    """
    orders = order_of_schedule("1f1b" if chunks == 1 else "interleaved1f1b", grid[0], chunks, microbatches)
    if orders is None:
        what = f"no schedule has {microbatches} microbatches on {grid[0]} ranks of {chunks} stages"
        raise InputError(f"{path}: {what}", hint="give --microbatches")
    place = np.repeat(np.arange(len(orders)), [len(order) for order in orders])
    kind, stage, number = (np.array(column) for column in zip(*(row for order in orders for row in order), strict=True))
    codes = np.array([ACTION_KINDS.index(letter) for letter in kind.tolist()], dtype=np.int32)
    edges = edges_between_ranks(place, codes, stage.astype(np.int32), number.astype(np.int32))
    replay = build_pipeline_replay(place, edges, np.full(len(edges), ABSENT, dtype=np.int64))
    shape = (len(place), len(iterations), grid[1])
    work_ns = np.empty(shape)
    for letter, name in _TIMERS.items():
        sums_ms = np.array([[one.timers[name].get(rank, 0.0) for rank in range(np.prod(grid))] for one in iterations])
        of_places = sums_ms.reshape(-1, *grid).max(axis=3) * 1e6 / (microbatches * chunks)
        work_ns[kind == letter] = of_places.swapaxes(0, 1)[place[kind == letter]]
    flat_ns = work_ns.reshape(len(place), -1)
    start_ns, span_ns = replay(flat_ns, np.zeros((len(edges), flat_ns.shape[1])))
    measured_ns = np.array([(one.elapsed_ms or 0.0) * 1e6 for one in iterations])
    lengths_ns = np.maximum(span_ns.reshape(shape[1:]).max(axis=1), measured_ns)
    start_ns = start_ns.reshape(shape) + (np.cumsum(lengths_ns) - lengths_ns)[:, None]
    columns = {
        "rank": (grid[2] * (np.arange(grid[1]) + grid[1] * place[:, None, None])),
        "replica": np.arange(grid[1]),
        "stage": stage[:, None, None],
        "step": np.array([one.number for one in iterations])[:, None],
        "microbatch": number[:, None, None],
        "kind": kind.astype(object)[:, None, None],
        "start_ns": np.rint(start_ns).astype(np.int64),
        "end_ns": np.rint(start_ns + work_ns).astype(np.int64),
    }
    return pd.DataFrame({name: np.broadcast_to(values, shape).ravel() for name, values in columns.items()})


def read_megascan(folder: Path) -> OperationTable:
    """Return the operations of a folder of files of ranks. Raises InputError when there are none, or one is damaged."""
    rows: list[dict[str, Any]] = []
    tensor_ranks = 0
    for file in sorted(folder.iterdir()):
        match = _RANK_FILE.fullmatch(file.name)
        if match is None or int(match[3]):
            tensor_ranks += match is not None
            continue
        try:
            rows += (
                {"replica": int(match[1]), "place": int(match[2]), **row}
                for row in _rows(json.loads(file.read_bytes()))
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            what = f"it is not as MegaScan writes it: {type(error).__name__} {error}"
            raise InputError(f"{file}: {what}", hint="give traces of MegaScan as it writes them") from None
    if not any(row["kind"] in COMPUTE for row in rows):
        what = f"{folder}: no forward and no backward in it"
        raise InputError(what, hint="trace with --trace-granularity base or full")
    table = pd.DataFrame(rows)
    ranks = int(table["place"].max()) + 1
    table["rank"] = table["replica"] * ranks + table["place"]
    table["stage"] = table["place"] + ranks * table.pop("chunk")
    notes = ["all ranks count as beginning an iteration at the same time, as MegaScan takes them"]
    if tensor_ranks:
        notes.insert(0, f"{tensor_ranks} files of tensor-parallel ranks left out: those of a stage run together")
    return OperationTable(
        path=str(folder),
        source="a trace of MegaScan",
        operations=in_order(table.drop(columns="place")),
        notes=tuple(notes),
    )


def _rows(records: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the operations of a rank's records."""
    step = -1
    open_ns: dict[str, int] = {}
    for record in records:
        name, kind = record["name"], kind_of(record["name"])
        if name == "iteration":
            step += record["ph"] == "B"
            open_ns = {}
        elif record["ph"] == "B":
            open_ns[name] = int(record["rel_ts"])
        elif name in open_ns and kind in _KEPT and (kind not in COMPUTE or record.get("microbatch") is not None):
            yield {
                "step": step,
                "chunk": int(record.get("model_chunk") or 0),
                "microbatch": int(record["microbatch"]) if kind in COMPUTE else ABSENT,
                "kind": kind,
                "start_ns": open_ns.pop(name),
                "end_ns": int(record["rel_ts"]),
            }
