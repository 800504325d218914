"""Trainers of an asynchronous job: their rates, and who waits for whom at a server."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tracekit.analysis.step_time.parts import NAMED_WAITS
from tracekit.analysis.step_time.step_rates import find_slow_rates, slow_rate_finding, steps_per_s
from tracekit.findings.finding import Finding
from tracekit.findings.thresholds import NOTABLE_SHARE
from tracekit.model.run import Run
from tracekit.model.summary import RankSummary
from tracekit.rpc.calls import JoinedCalls
from tracekit.rpc.findings import MOSTLY_FOR_ONE, waited_for_trainer
from tracekit.rpc.rank import WHAT, blocked_time, time_of

__all__ = ["HeldCalls", "held_calls", "trainer_findings", "trainer_rows", "waits_ns"]


@dataclass(frozen=True, kw_only=True)
class HeldCalls:
    """Calls of one trainer that a server answered only when another trainer's call had come.

    Attributes:
        rank: whose calls they are.
        by: rank of the trainer that they waited for; None if it has no recording.
        total_ns: from the return of their functions to the end of their futures.
    """

    rank: int
    by: int | None
    callee: str
    count: int
    total_ns: int


def waits_ns(summary: RankSummary) -> int:
    """Return how long a rank waits for remote calls in its complete steps."""
    return sum(wait.total_ns for wait in summary[NAMED_WAITS] if wait.what == WHAT)


def held_calls(joined: JoinedCalls) -> list[HeldCalls]:
    """Return the calls in complete steps that waited at a server for other trainers, by pair and server."""
    counts: Counter[tuple[int, int | None, str]] = Counter()
    times_ns: Counter[tuple[int, int | None, str]] = Counter()
    for rank, calls in joined.calls.items():
        for item in calls:
            service = item.service
            if item.step is None or service is None or service.returned_ns is None or service.released_by is None:
                continue
            if service.released_by.caller == service.caller:
                continue
            worker = joined.worker_of_id.get(service.released_by.caller)
            key = (rank, joined.rank_of_worker.get(worker or ""), item.call.callee)
            counts[key] += 1
            times_ns[key] += service.end_ns - service.returned_ns
    return [
        HeldCalls(rank=rank, by=by, callee=callee, count=counts[rank, by, callee], total_ns=times_ns[rank, by, callee])
        for rank, by, callee in counts
    ]


def trainer_rows(run: Run, joined: JoinedCalls, held: Sequence[HeldCalls]) -> list[dict[str, object]]:
    """Return rows of columns.RPC_TRAINERS, one for each rank with complete steps that makes remote calls."""
    return [_row(summary, joined, held) for summary in _trainers(run, joined)]


def _trainers(run: Run, joined: JoinedCalls) -> list[RankSummary]:
    return [
        summary for summary in run.ranks if summary.is_measured and _steps(summary) and joined.calls.get(summary.rank)
    ]


def _steps(summary: RankSummary) -> int:
    return sum(step.complete for step in summary.steps)


def _row(summary: RankSummary, joined: JoinedCalls, held: Sequence[HeldCalls]) -> dict[str, object]:
    steps = [step for step in summary.steps if step.complete]
    return {
        "rank": summary.rank,
        "worker": joined.uses[summary.rank].worker,
        "steps": len(steps),
        "step_ns": sum(step.step_ns for step in steps) / len(steps),
        "steps_per_s": steps_per_s(summary),
        "compute_ns": sum(step.compute_ns for step in steps) / len(steps),
        "wait_ns": waits_ns(summary) / len(steps),
        "held_ns": sum(pair.total_ns for pair in held if pair.rank == summary.rank) / len(steps),
    }


def trainer_findings(run: Run, joined: JoinedCalls, held: Sequence[HeldCalls]) -> Iterator[Finding]:
    """Yield findings on the trainer that others wait for at a server, else on those that are slow.

    Where ranks communicate directly, the sections on stragglers and replays say who waits for whom.
    """
    trainers = _trainers(run, joined)
    if len(trainers) < 2 or not run.ranks_are_independent:
        return
    if held:
        yield from _waited_for(trainers, joined, held)
        return
    slow = find_slow_rates(
        trainers,
        {summary.rank: waits_ns(summary) for summary in trainers},
        (
            {summary.rank: _own_times_ns(summary, joined) for summary in trainers},
            {summary.rank: [step.compute_ns for step in summary.steps if step.complete] for summary in trainers},
        ),
    )
    if slow is not None:
        besides = "nobody waits for it" if len(slow.slow) == 1 else "nobody waits for them"
        names = {rank: use.worker for rank, use in joined.uses.items()}
        yield slow_rate_finding(slow, names, besides, slow.even_rate_text)


def _own_times_ns(summary: RankSummary, joined: JoinedCalls) -> list[int]:
    """Return how long each complete step of a trainer is without its waits for remote calls."""
    blocked = blocked_time(joined.uses[summary.rank])
    steps = [(step.start_ns, step.start_ns + step.step_ns) for step in summary.steps if step.complete]
    return [end_ns - start_ns - (blocked & time_of([(start_ns, end_ns)])).len_ns for start_ns, end_ns in steps]


def _waited_for(trainers: Sequence[RankSummary], joined: JoinedCalls, held: Sequence[HeldCalls]) -> Iterator[Finding]:
    """Yield a finding if others wait at a server for one trainer, mostly, for a notable part of their steps."""
    by: Counter[int | None] = Counter()
    for pair in held:
        by[pair.by] += pair.total_ns
    (rank, total_ns), *_ = by.most_common(1)
    others = [summary for summary in trainers if summary.rank != rank]
    steps = sum(_steps(summary) for summary in others)
    step_ns = sum(step.step_ns for summary in others for step in summary.steps if step.complete)
    if rank is None or not others:
        return
    callee = Counter({pair.callee: pair.total_ns for pair in held if pair.by == rank}).most_common(1)[0][0]
    wait_ns = total_ns // max(steps, 1)
    slow = next((summary for summary in trainers if summary.rank == rank), None)
    beyond_ns = 0.0 if slow is None else _mean_compute_ns([slow]) - _mean_compute_ns(others)
    longer_ns = round(beyond_ns) if beyond_ns >= 0.5 * wait_ns and slow is not None else None
    yield waited_for_trainer(
        rank=rank,
        cause="rpc" if longer_ns is None else "slow_compute",
        time_ns=wait_ns,
        evidence={
            "others_wait_ns": wait_ns,
            "callee": callee,
            "worker": joined.uses[rank].worker,
            "longer_ns": longer_ns,
            "no_replay": "remote calls are no part of the replay",
        },
        conditions=[
            NOTABLE_SHARE.reached_by(total_ns / max(step_ns, 1)),
            MOSTLY_FOR_ONE.reached_by(total_ns / max(by.total(), 1)),
        ],
    )


def _mean_compute_ns(ranks: Sequence[RankSummary]) -> float:
    steps = [step.compute_ns for summary in ranks for step in summary.steps if step.complete]
    return statistics.fmean(steps) if steps else 0.0
