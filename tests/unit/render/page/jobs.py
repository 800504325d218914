"""Simulated jobs for tests of the HTML report, with lanes that need no files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from benchmarks.simulated import Cluster
from tracekit.api import Report, analyze
from tracekit.explain.step_time.tables import IDLE_SUMS, PHASE_SUMS, STEP_PHASES, IdleSum, PhasePart, PhaseSums
from tracekit.model.metadata import Mesh
from tracekit.model.run import Run
from tracekit.model.summary import RankSummary
from tracekit.rank.idle_causes import IDLE_CAUSES
from tracekit.report.step_lanes import LANES, Operation, StepLanes, StepTime

SLOW_RANK = 5


def job(ranks: int = 8, steps: int = 4, *, tensor: int = 2, mesh: bool = True) -> Run:
    """Return a job of data and tensor parallelism in which one rank computes longer.

    In each step the ranks of one model replica, `tensor` neighbours, reduce 1 MB, and then those of each shard 16 MB.
    Step k is k us longer than the first one.
    """
    cluster = Cluster(ranks)
    for number in cluster.steps(steps):
        for rank in range(ranks):
            late_ns = 500_000 if rank == SLOW_RANK else 0
            cluster.work(rank, compute=1_000_000 + 1_000 * number + late_ns + 10 * rank)
        for first in range(0, ranks, tensor):
            cluster.collective(range(first, first + tensor), transfer=50_000, size_bytes=1 << 20)
        for first in range(tensor):
            cluster.collective(range(first, ranks, tensor), transfer=200_000, size_bytes=1 << 24)
    run = cluster.run()
    return replace(run, ranks=tuple(_with_parts(summary, ranks, tensor, mesh) for summary in run.ranks))


def _with_parts(summary: RankSummary, ranks: int, tensor: int, mesh: bool) -> RankSummary:
    """Return the summary with a place in the mesh, and as many rows of phases and idle time as a recorded rank has."""
    total_ns = sum(step.step_ns for step in summary.steps)
    phases = [
        PhasePart(phase=p, total_ns=0, compute_ns=0, exposed_comm_ns=0, exposed_copy_ns=0, idle_ns=0)
        for p in STEP_PHASES
    ]
    phases[1] = replace(phases[1], total_ns=total_ns, compute_ns=total_ns)
    idle = tuple(IdleSum(cause=cause, total_ns=summary.rank + i) for i, cause in enumerate(IDLE_CAUSES))
    place = [summary.rank // tensor, summary.rank % tensor]
    summary = summary.with_part(PHASE_SUMS, PhaseSums(parts=tuple(phases))).with_part(IDLE_SUMS, idle)
    return replace(
        summary,
        host=f"node{summary.rank // 8}",
        mesh=Mesh(names=["dp", "tp"], shape=[ranks // tensor, tensor], coordinate=place) if mesh else None,
    )


def report_of(run: Run) -> Report:
    return analyze(run)


def made_up_lanes(run: Run, times: Sequence[StepTime], most_operations: int) -> list[StepLanes]:
    """Return for each step lanes whose first bin is covered by half, and as many operations as there may be."""
    covered = np.zeros((len(LANES), times[0].bins))
    covered[0, 0] = 0.5
    operations = tuple(
        Operation(name=f"operation {i}", lane=0, start_ns=1_000 * i, end_ns=1_000 * i + 900)
        for i in range(most_operations)
    )
    phases = ((0, 500_000, "forward"), (500_000, 1_000_000, "backward"))
    return [StepLanes(time=time, covered=covered, phases=phases, operations=operations) for time in times]
