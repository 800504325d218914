"""Timers in logs of Megatron-LM, as `--timing-log-option all --timing-log-level 2` prints them.

    iteration        3/     500 | ... | elapsed time per iteration (ms): 812.4 | ... | global batch size:    64 | ...
    times across ranks (ms):
      forward-compute:
         rank  0: 201.34
         rank  1: 198.80

Timers are sums: how long a rank was in its forwards, and in its backwards, in an iteration. They do not say when, nor
how long each microbatch took. So the order of a step is that of a **model**: Megatron's schedule for the sizes that the
log prints with its arguments, or that are given, with microbatches of a rank that take equally long, and transfers that
take no time. The report says so. What a model cannot show is what differs within an iteration.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from tracekit.errors import InputError
from tracekit.explain.pipeline.bubble_causes import build_pipeline_replay
from tracekit.explain.pipeline.schedules import Order, order_of_schedule
from tracekit.explain.pipeline.transfers import edges_between_ranks
from tracekit.model.events import ABSENT
from tracekit.model.spans import ACTION_KINDS
from tracekit.optables.operation_table import OperationTable, in_order, require_size

_TIMERS = {"F": "forward-compute", "B": "backward-compute"}
_ITERATION = re.compile(r"\biteration\s+(\d{1,15})\s*/\s*\d+\s*\|")
_ELAPSED = re.compile(r"elapsed time per iteration \(ms\):\s*(\d+\.?\d*)")
_BATCH = re.compile(r"global batch size:\s*(\d+)")
_ARGUMENT = re.compile(r"\b(\w+_size) \.{3,} (\d{1,9})\s*$")
_TIMER = re.compile(r"(?:^|[\s\]:])([a-z][a-z0-9]*(?:-[a-z0-9]+)+|optimizer):\s*$")
_OF_RANK = re.compile(r"\brank\s+(\d{1,9}):\s*(\d+\.?\d*)\s*$")


def read_timer_log(path: Path, pipeline_ranks: int | None = None, microbatches: int | None = None) -> OperationTable:
    """Return the operations of a log, in the order of Megatron's schedule; sizes that are not given are as it says.

    Raises InputError when the log names no ranks, lacks the timers of forwards and backwards, or does not say the sizes
    that the order follows from.
    """
    sums_ms, elapsed_ms, sizes = _parse(path)
    if not set(_TIMERS.values()) <= set(sums_ms.columns.get_level_values("timer")):
        what = f"it does not have the timers {' and '.join(_TIMERS.values())} of each rank"
        raise InputError(f"{path}: {what}", hint="log with --timing-log-option all --timing-log-level 2")
    ranks = 1 + int(sums_ms.columns.get_level_values("rank").max())
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
    if not microbatches:
        raise InputError(f"{path}: it does not say how many microbatches a step has", hint="give --microbatches")
    chunks = sizes.get("virtual_pipeline_model_parallel_size", 1)
    grid = (pipeline_ranks, replicas, together)
    require_size(path, len(sums_ms) * replicas * pipeline_ranks * 2 * microbatches * chunks)
    orders = order_of_schedule("1f1b" if chunks == 1 else "interleaved1f1b", pipeline_ranks, chunks, microbatches)
    if orders is None:
        what = f"no schedule has {microbatches} microbatches on {pipeline_ranks} ranks of {chunks} stages"
        raise InputError(f"{path}: {what}", hint="give --microbatches")
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
        operations=in_order(_modelled(sums_ms, elapsed_ms, orders, grid)),
        measured_ns={step: round(time_ms * 1e6) for step, time_ms in elapsed_ms.items()},
        modelled=True,
        notes=tuple(notes),
    )


def _parse(path: Path) -> tuple[pd.DataFrame, dict[int, float], dict[str, int]]:
    """Return sums in ms, a row an iteration and a column a timer and rank, lengths of iterations in ms, and sizes."""
    sizes: dict[str, int] = {}
    elapsed_ms: dict[int, float] = {}
    sums_ms: list[tuple[int, str, int, float]] = []
    iteration, timer = -1, ""
    with path.open(errors="replace") as lines:
        for line in lines:
            if match := _ITERATION.search(line):
                iteration, timer = int(match[1]), ""
                if match := _ELAPSED.search(line):
                    elapsed_ms[iteration] = float(match[1])
                if match := _BATCH.search(line):
                    sizes["global_batch_size"] = int(match[1])
            elif timer and iteration >= 0 and (match := _OF_RANK.search(line)):
                sums_ms.append((iteration, timer, int(match[1]), float(match[2])))
            elif match := _TIMER.search(line):
                timer = match[1]
            elif match := _ARGUMENT.search(line):
                sizes.setdefault(match[1], max(int(match[2]), 1))
    table = pd.DataFrame(sums_ms, columns=["step", "timer", "rank", "ms"])
    return table.pivot_table(values="ms", index="step", columns=["timer", "rank"], aggfunc="last"), elapsed_ms, sizes


def _modelled(
    timers_ms: pd.DataFrame, elapsed_ms: Mapping[int, float], orders: Sequence[Order], grid: tuple[int, int, int]
) -> pd.DataFrame:
    """Return the operations of a schedule whose forwards and backwards of a rank take equally long.

    grid: pipeline ranks, replicas, and ranks that run a stage together. Megatron numbers ranks by the last first.
    """
    pipeline_rank = np.repeat(np.arange(len(orders)), [len(order) for order in orders])
    kind, stage, number = (np.array(column) for column in zip(*(row for order in orders for row in order), strict=True))
    codes = np.array([ACTION_KINDS.index(letter) for letter in kind.tolist()], dtype=np.int32)
    edges = edges_between_ranks(pipeline_rank, codes, stage.astype(np.int32), number.astype(np.int32))
    replay = build_pipeline_replay(pipeline_rank, edges, np.full(len(edges), ABSENT, dtype=np.int64))
    shape = (len(pipeline_rank), len(timers_ms), grid[1])
    work_ns = np.empty(shape)
    for letter, name in _TIMERS.items():
        sums_ms = pd.DataFrame(timers_ms[name]).reindex(columns=range(np.prod(grid))).fillna(0.0)
        of_ranks = sums_ms.to_numpy().reshape(-1, *grid).max(axis=3) * 1e6 / (len(orders[0]) / 2)
        work_ns[kind == letter] = of_ranks.swapaxes(0, 1)[pipeline_rank[kind == letter]]
    flat_ns = work_ns.reshape(len(pipeline_rank), -1)
    start_ns, span_ns = replay(flat_ns, np.zeros((len(edges), flat_ns.shape[1])))
    measured_ns = np.array([elapsed_ms.get(step, 0.0) * 1e6 for step in timers_ms.index])
    lengths_ns = np.maximum(span_ns.reshape(shape[1:]).max(axis=1), measured_ns)
    start_ns = start_ns.reshape(shape) + (np.cumsum(lengths_ns) - lengths_ns)[:, None]
    columns = {
        "rank": (grid[2] * (np.arange(grid[1]) + grid[1] * pipeline_rank[:, None, None])),
        "replica": np.arange(grid[1]),
        "stage": stage[:, None, None],
        "step": timers_ms.index.to_numpy()[:, None],
        "microbatch": number[:, None, None],
        "kind": kind.astype(object)[:, None, None],
        "start_ns": np.rint(start_ns).astype(np.int64),
        "end_ns": np.rint(start_ns + work_ns).astype(np.int64),
    }
    return pd.DataFrame({name: np.broadcast_to(values, shape).ravel() for name, values in columns.items()})
