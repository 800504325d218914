"""Derive the truth of a job from the final state of its simulation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from benchmarks.gpu_jobs.cluster import FinishedJob
from benchmarks.gpu_jobs.engine import Kernel, Transfer
from benchmarks.gpu_jobs.intervals import clipped, length, minus, union
from benchmarks.gpu_jobs.rank import Rank
from benchmarks.gpu_jobs.truth import Action, Message, Operation, RankStep, Truth


def truth_of(job: FinishedJob, without_defect: FinishedJob) -> Truth:
    actions = _actions(job.kernels)
    bubble_ns, bubble_ratio = _bubbles(job, actions)
    spec = job.spec
    return Truth(
        steps=tuple(step for rank in job.ranks for step in rank_steps(job, rank)),
        operations=tuple(_operation(transfer) for transfer in job.transfers if transfer.source is None),
        messages=tuple(_message(transfer) for transfer in job.transfers if transfer.source is not None),
        actions=actions,
        bubble_ns=bubble_ns,
        bubble_ratio=bubble_ratio,
        clock_ahead_ns=tuple(
            spec.clocks.error_ns(spec.host_of(rank), job.duration_ns // 2, job.duration_ns)
            for rank in range(spec.ranks)
        ),
        defect=spec.defect,
        mean_step_ns=mean_step_ns(job),
        counterfactual_step_ns=mean_step_ns(without_defect),
    )


def mean_step_ns(job: FinishedJob) -> float:
    """Return the mean duration of the settled steps over ranks."""
    settled_ns = []
    for rank in job.ranks:
        windows = step_windows(job, rank)
        settled = windows[1:-1] or windows
        settled_ns += [end_ns - start_ns for _, start_ns, end_ns in settled]
    return sum(settled_ns) / len(settled_ns)


def step_windows(job: FinishedJob, rank: Rank) -> list[tuple[int, int, int]]:
    """Return (step, start, end) of each step. It starts on the host, or when the compute launched before has ended."""
    spans = [record for record in rank.records if record.name.startswith("ProfilerStep#")]
    kernels = job.kernels_of[rank.rank]
    starts_ns = [
        max([span.start_ns] + [k.end_ns for k in kernels if k.activity == "compute" and k.launch_ns < span.start_ns])
        for span in spans
    ]
    last = [k.end_ns for k in kernels if k.launch_ns >= spans[-1].start_ns]
    ends_ns = [*starts_ns[1:], max([spans[-1].end_ns, *last])]
    numbers = [int(span.name.removeprefix("ProfilerStep#")) for span in spans]
    return list(zip(numbers, starts_ns, ends_ns, strict=True))


def rank_steps(job: FinishedJob, rank: Rank) -> list[RankStep]:
    kernels = job.kernels_of[rank.rank]
    busy = {
        activity: [(k.start_ns, k.end_ns) for k in kernels if k.activity == activity]
        for activity in ("compute", "comm", "copy")
    }
    return [_rank_step(rank.rank, window, busy) for window in step_windows(job, rank)]


def _rank_step(rank: int, window: tuple[int, int, int], busy: dict[str, list[tuple[int, int]]]) -> RankStep:
    step, start_ns, end_ns = window
    inside = {activity: union(clipped(intervals, (start_ns, end_ns))) for activity, intervals in busy.items()}
    compute, comm, copy = inside["compute"], inside["comm"], inside["copy"]
    exposed_comm_ns = length(minus(comm, compute))
    return RankStep(
        rank=rank,
        step=step,
        start_ns=start_ns,
        end_ns=end_ns,
        compute_ns=length(compute),
        exposed_comm_ns=exposed_comm_ns,
        exposed_copy_ns=length(minus(copy, [*compute, *comm])),
        idle_ns=length(minus([(start_ns, end_ns)], [*compute, *comm, *copy])),
        comm_ns=length(comm),
        overlapped_comm_ns=length(comm) - exposed_comm_ns,
    )


def _operation(transfer: Transfer) -> Operation:
    kernels = [transfer.kernels[member] for member in transfer.members]
    arrivals_ns = tuple(kernel.arrival_ns for kernel in kernels)
    before_ns = max((other.end_ns for kernel in kernels for other in kernel.behind), default=0)
    last_end_ns = max(kernel.end_ns for kernel in kernels)
    begin_ns = max(*arrivals_ns, before_ns)
    return Operation(
        group=transfer.group.name,
        kind=transfer.kind,
        members=transfer.members,
        step=transfer.step,
        sequence=transfer.sequence,
        arrival_ns=arrivals_ns,
        start_ns=tuple(kernel.start_ns for kernel in kernels),
        end_ns=tuple(kernel.end_ns for kernel in kernels),
        size_bytes=transfer.size_bytes,
        transfer_ns=last_end_ns - begin_ns,
        queued_ns=begin_ns - max(arrivals_ns),
    )


def _message(transfer: Transfer) -> Message:
    assert transfer.source is not None
    assert transfer.destination is not None
    return Message(
        group=transfer.group.name,
        source=transfer.source,
        destination=transfer.destination,
        step=transfer.step,
        source_ready_ns=transfer.kernels[transfer.source].arrival_ns,
        destination_ready_ns=transfer.kernels[transfer.destination].arrival_ns,
        end_ns=transfer.end_ns,
        transfer_ns=transfer.transfer_ns,
        size_bytes=transfer.size_bytes,
    )


def _actions(kernels: Sequence[Kernel]) -> tuple[Action, ...]:
    spans: dict[tuple[int, int, int, int, str], list[int]] = defaultdict(list)
    for kernel in kernels:
        if kernel.facts["action"] is not None:
            spans[kernel.rank, kernel.step, *kernel.facts["action"]] += [kernel.start_ns, kernel.end_ns]
    return tuple(
        Action(
            rank=rank,
            step=step,
            stage=stage,
            microbatch=microbatch,
            kind=kind,
            start_ns=min(times_ns),
            end_ns=max(times_ns),
        )
        for (rank, step, stage, microbatch, kind), times_ns in spans.items()
    )


def _bubbles(job: FinishedJob, actions: Sequence[Action]) -> tuple[tuple[float, ...], float | None]:
    if not actions:
        return (), None
    spans: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for action in actions:
        spans[action.rank, action.step].append((action.start_ns, action.end_ns))
    bubbles: dict[int, list[int]] = defaultdict(list)
    whole_ns = 0
    for rank, step in spans:
        pipeline = [spans[peer, step] for peer in job.groups[rank]["pp"].ranks]
        whole = max(end for one in pipeline for _, end in one) - min(start for one in pipeline for start, _ in one)
        bubbles[rank].append(whole - length(spans[rank, step]))
        whole_ns += whole
    means = tuple(sum(bubbles[rank]) / len(bubbles[rank]) for rank in sorted(bubbles))
    return means, sum(map(sum, bubbles.values())) / whole_ns
