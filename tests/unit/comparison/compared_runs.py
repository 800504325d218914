"""Reports on simulated runs whose steps have known lengths and causes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from benchmarks.simulated import Cluster
from tracekit.comparison.comparison import SECTIONS_READ
from tracekit.model.run import Run
from tracekit.report.report import Report, analyze

MS = 1_000_000
TRANSFER_NS = 10 * MS


def run_of_steps(
    compute_ms: Sequence[float],
    *,
    ranks: int = 2,
    data_ms: float = 0.0,
    transfer_ms: float = 10.0,
    slower_ms: Mapping[int, float] | None = None,
    path: str = "run",
    **others: Any,
) -> Run:
    """Return a run whose ranks load data, compute, and meet in one all-reduce in each step.

    compute_ms: of each step. slower_ms: what some ranks compute longer, by rank. others: fields of the run.
    """
    cluster = Cluster(ranks)
    for step in cluster.steps(len(compute_ms)):
        for rank in range(ranks):
            own_ms = compute_ms[step] + (slower_ms or {}).get(rank, 0.0)
            cluster.work(rank, data=round(data_ms * MS), compute=round(own_ms * MS))
        cluster.collective(range(ranks), transfer=round(transfer_ms * MS))
    return replace(cluster.run(world_size=ranks, paths=(path,)), **others)


def report_of_steps(compute_ms: Sequence[float], **others: Any) -> Report:
    """Return the report on `run_of_steps`, with what a comparison reads."""
    return analyze(run_of_steps(compute_ms, **others), only=SECTIONS_READ)


STEADY = (90.0, 91.0, 89.0, 90.5, 89.5, 90.0, 90.2, 89.8, 90.1, 89.9)
"""Steps of 100 ms with their transfer; they vary by 0.6 %."""


def longer(by_ms: float) -> tuple[float, ...]:
    """Return the steps of `STEADY`, all of them longer."""
    return tuple(step + by_ms for step in STEADY)
