"""Pairs of a truth and a report that are made by hand, so that checks are tested without simulating or analysing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.studies.gpu_jobs.evidence import Evidence
from tests.gpu_jobs import Action, Defect, JobSpec, Message, Operation, RankStep, Truth
from tests.gpu_jobs.kineto import BASE_NS, ORIGIN_NS
from tracekit.model.clocks import ClockModel
from tracekit.model.communication import KINDS

SHOWN_NS = BASE_NS + ORIGIN_NS  # what clocks show when a job starts
MS = 1_000_000


def evidence(
    spec: JobSpec, *, truth: dict[str, Any] | None = None, kernels: Any = (), report: dict[str, Any] | None = None
) -> Evidence:
    """Return a job and a report. The truth is that of a job of steps of 10 ms in which nothing is known otherwise."""
    known: dict[str, Any] = {
        "steps": tuple(rank_step(rank) for rank in range(spec.ranks)),
        "operations": (),
        "messages": (),
        "actions": (),
        "bubble_ns": (),
        "bubble_ratio": None,
        "clock_ahead_ns": (0.0,) * spec.ranks,
        "defect": spec.defect,
        "mean_step_ns": 10.0 * MS,
        "counterfactual_step_ns": 10.0 * MS,
    }
    finished = SimpleNamespace(duration_ns=10 * MS, kernels=tuple(kernels), transfers=())
    job: Any = SimpleNamespace(spec=spec, truth=Truth(**(known | (truth or {}))), finished=finished)
    sections = dict.fromkeys(("stragglers", "pipeline", "tensor", "overlap", "whatif", "buckets", "fsdp"))
    said: Any = SimpleNamespace(**(sections | {"findings": (), "unavailable": {}} | (report or {})))
    return Evidence(job, lambda _: said)


def ddp(ranks: int = 2, **changes: Any) -> JobSpec:
    return JobSpec(family="ddp", dp=ranks, **changes)


def slow_rank(rank: int, cause: Any = "compute", delay_us: float = 1000.0) -> JobSpec:
    return ddp(4, defect=Defect(cause=cause, ranks=(rank,), delay_us=delay_us))


def rank_step(
    rank: int, step: int = 3, *, start_ns: int = 0, end_ns: int = 10 * MS, compute_ns: int = 6 * MS
) -> RankStep:
    return RankStep(
        rank=rank,
        step=step,
        start_ns=start_ns,
        end_ns=end_ns,
        compute_ns=compute_ns,
        exposed_comm_ns=2 * MS,
        exposed_copy_ns=0,
        idle_ns=end_ns - start_ns - compute_ns - 2 * MS,
        comm_ns=3 * MS,
        overlapped_comm_ns=1 * MS,
    )


def seen_step(step: RankStep, **changes: Any) -> Any:
    """Return the step as a report that is right has it, on a clock that is right."""
    parts = ("step", "compute_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns", "comm_ns", "overlapped_comm_ns")
    known = {name: getattr(step, name) for name in parts}
    known |= {"complete": True, "start_ns": SHOWN_NS + step.start_ns, "step_ns": step.end_ns - step.start_ns}
    return SimpleNamespace(**(known | changes))


def operation(*arrivals_ns: int, transfer_ns: int = MS, queued_ns: int = 0, **changes: Any) -> Operation:
    """Return an all-reduce of ranks that arrive at these times and end together."""
    end_ns = max(arrivals_ns) + queued_ns + transfer_ns
    known: dict[str, Any] = {
        "group": "default_pg",
        "kind": "all_reduce",
        "members": tuple(range(len(arrivals_ns))),
        "step": 3,
        "sequence": 0,
        "arrival_ns": arrivals_ns,
        "start_ns": arrivals_ns,
        "end_ns": (end_ns,) * len(arrivals_ns),
        "size_bytes": 4096,
        "transfer_ns": transfer_ns,
        "queued_ns": queued_ns,
    }
    return Operation(**(known | changes))


def message(source: int, destination: int, end_ns: int, *, transfer_ns: int = 1000) -> Message:
    return Message(
        group="pp",
        source=source,
        destination=destination,
        step=3,
        source_ready_ns=end_ns - 1000,
        destination_ready_ns=end_ns - 1000,
        end_ns=end_ns,
        transfer_ns=transfer_ns,
        size_bytes=4096,
    )


def action(rank: int, kind: str, start_ns: int, end_ns: int, *, stage: int | None = None) -> Action:
    stage = rank if stage is None else stage
    return Action(rank=rank, step=3, stage=stage, microbatch=0, kind=kind, start_ns=start_ns, end_ns=end_ns)


def clocks(*offsets_ns: int, error_ns: int = 0) -> tuple[ClockModel, ...]:
    return tuple(
        ClockModel(rank=rank, method="collectives", offset_ns=offset_ns, error_ns=error_ns)
        for rank, offset_ns in enumerate(offsets_ns)
    )


def matched(ranks: list[int], row: list[list[int]], kind: str = "all_reduce") -> Any:
    """Return a matched group: `row` has for each rank the rows of its collectives in each instance."""
    instances = len(row[0])
    return SimpleNamespace(
        group=0, ranks=np.array(ranks), row=np.array(row), kind=np.full(instances, KINDS.index(kind))
    )


def times(*, wait_ns: list[list[int]], transfer_ns: list[int], error_ns: int = 0) -> Any:
    """Return the times of a group's instances. The last rank is the one that does not wait."""
    waits = np.array(wait_ns)
    return SimpleNamespace(
        place=np.arange(waits.shape[1]),
        wait_ns=waits,
        transfer_ns=np.array(transfer_ns),
        error_ns=error_ns,
    )
