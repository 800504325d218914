"""Steps of a pipeline that run as soon as they can, written as a table: a loop over the order, and no replay.

Times are whole nanoseconds, so that a table in another unit is the same table.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from tracekit.explain.pipeline.schedules import order_of_schedule
from tracekit.optables.diagnosis import TableDiagnosis, diagnose_table
from tracekit.optables.operation_table import read_table

FORWARD_NS, BACKWARD_NS, TRANSFER_NS = 10_000_000, 20_000_000, 1_000_000
COLUMNS = ("rank", "stage", "dp_rank", "step", "kind", "microbatch", "start_ns", "end_ns")
Place = tuple[int, int, str, int]
"""Step, rank, kind and microbatch of an operation."""


def simulate(
    *,
    ranks: int = 4,
    microbatches: int = 8,
    steps: int = 6,
    replicas: int = 1,
    schedule: str = "1f1b",
    virtual_stages: int = 1,
    longer_ns: Mapping[Place, int] | None = None,
    slow_ranks: Mapping[int, float] | None = None,
    slow_stages: Mapping[int, float] | None = None,
    slow_steps: Collection[int] = (),
    noise: float = 0.01,
    tail: bool = True,
    seed: int = 0,
) -> pd.DataFrame:
    """Return the table. longer_ns: by how much single operations are longer. slow_ranks, slow_stages: how many times as
    long their operations take. tail: replicas reduce gradients behind the last backward, and the optimizer steps.
    """
    rng = np.random.default_rng(seed)
    rows: list[tuple[object, ...]] = []
    begin = 0
    for step in range(steps):
        free_of_replicas = []
        for replica in range(replicas):
            orders = order_of_schedule(schedule, ranks, virtual_stages, microbatches)
            assert orders is not None
            left, free, done = [list(order) for order in orders], [begin] * ranks, {}
            while any(left):
                for place, todo in enumerate(left):
                    while todo:
                        kind, stage, number = todo[0]
                        source = (kind, stage - 1 if kind == "F" else stage + 1, number)
                        if 0 <= source[1] < ranks * virtual_stages and source not in done:
                            break
                        ended, where = done.get(source, (begin, place))
                        start = max(free[place], ended) + (TRANSFER_NS if where != place else 0)
                        rank = replica * ranks + place
                        factor = (slow_ranks or {}).get(rank, 1.0) * (slow_stages or {}).get(stage, 1.0)
                        factor *= rng.normal(1, noise) * (3 if step in slow_steps else 1) / virtual_stages
                        length = round((FORWARD_NS if kind == "F" else BACKWARD_NS) * factor)
                        length += (longer_ns or {}).get((step, rank, kind, number), 0)
                        done[kind, stage, number], free[place] = (start + length, place), start + length
                        rows.append((rank, stage, replica, step, kind, number, start, start + length))
                        todo.pop(0)
            free_of_replicas.append(free)
        ends = [max(free[place] for free in free_of_replicas) for place in range(ranks)]
        if tail:
            for replica, free in enumerate(free_of_replicas):
                for place, at in enumerate(free):
                    identity = (replica * ranks + place, place, replica, step)
                    rows.append((*identity, "all-reduce", "", at, ends[place] + 5_000_000))
                    rows.append((*identity, "optimizer", "", ends[place] + 5_000_000, ends[place] + 8_000_000))
        begin = max(ends) + 10_000_000
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(str)


def diagnose(table: pd.DataFrame) -> TableDiagnosis:
    return diagnose_table(read_table(table, "ops.csv"))


def written(table: pd.DataFrame, folder: Path) -> Path:
    table.to_csv(folder / "ops.csv", index=False)
    return folder / "ops.csv"
