"""How long a step waits for remote calls, and what of a round trip is service at the callee.

A call is joined to its service by its id. The rest of its round trip is transit and queueing. It is the difference of
two durations, each on one clock: clocks of different ranks are not compared.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tracekit.model.metadata import RpcCall, RpcService, RpcUse
from tracekit.model.run import Run
from tracekit.model.summary import RankSummary
from tracekit.rpc.rank import REMOTE_CALLS, blocked_time, complete_time, in_flight_time, time_of

NO_RECORDING = "the callee has no recording"
_WITHOUT_ID = {
    "builtin": "a call of a builtin operator carries no id",
    "script": "a call of a TorchScript function carries no id",
    "fetch": "the fetch of a remote value carries no id",
}
_OUTSIDE = "served outside the callee's recording"
_NOT_OVER = "not over when the recording ended"

__all__ = [
    "NO_RECORDING",
    "CallSums",
    "Function",
    "JoinedCall",
    "JoinedCalls",
    "call_rows",
    "function_rows",
    "join_calls",
    "sum_calls",
    "unjoined_calls",
]

Function = tuple[str, str]
"""Callee and function."""


@dataclass(frozen=True, kw_only=True)
class JoinedCall:
    """A call that a rank issued.

    Attributes:
        step: the complete step in which it was issued; None outside of them.
        service: what its callee recorded of it; None where it recorded nothing.
    """

    call: RpcCall
    step: int | None
    service: RpcService | None


@dataclass(frozen=True, kw_only=True)
class JoinedCalls:
    """The remote calls of a run.

    Attributes:
        uses: what each rank called and served, by rank.
        calls: of each of these ranks, in order of issue.
        services: all of them, by the caller's id and the number of the call.
        rank_of_worker: the rank of each worker that has a recording, by name.
        worker_of_id: the same workers by their id.
    """

    uses: Mapping[int, RpcUse]
    calls: Mapping[int, Sequence[JoinedCall]]
    services: Mapping[tuple[int, int], RpcService]
    rank_of_worker: Mapping[str, int]
    worker_of_id: Mapping[int, str]


def join_calls(ranks: Sequence[RankSummary]) -> JoinedCalls:
    """Return the remote calls of these ranks."""
    uses = {summary.rank: use for summary in ranks if (use := summary[REMOTE_CALLS]) is not None}
    services = {(service.caller, service.number): service for use in uses.values() for service in use.services}
    return JoinedCalls(
        uses=uses,
        calls={
            summary.rank: _calls_of(summary, uses[summary.rank], services) for summary in ranks if summary.rank in uses
        },
        services=services,
        rank_of_worker={use.worker: rank for rank, use in uses.items()},
        worker_of_id={use.worker_id: use.worker for use in uses.values()},
    )


def _calls_of(summary: RankSummary, use: RpcUse, services: Mapping[tuple[int, int], RpcService]) -> list[JoinedCall]:
    complete = sorted(
        (step.start_ns, step.start_ns + step.step_ns, step.step) for step in summary.steps if step.complete
    )
    starts_ns = np.array([start_ns for start_ns, _, _ in complete], dtype=np.int64)
    calls = sorted(use.calls, key=lambda call: call.issued_ns)
    places = np.searchsorted(starts_ns, np.array([call.issued_ns for call in calls], dtype=np.int64), side="right") - 1
    return [
        JoinedCall(
            call=call,
            step=complete[place][2] if place >= 0 and call.issued_ns < complete[place][1] else None,
            service=services.get((use.worker_id, call.number)),
        )
        for call, place in zip(calls, places.tolist(), strict=True)
    ]


@dataclass(kw_only=True)
class CallSums:
    """Calls of one rank to one function. Times are of the `completed` ones: joined, and seen to end.

    Attributes:
        cpu_ns: how long the callee's threads ran on a CPU in these; None where it is not known of all.
        held_ns: how much of the service was until a later call of another worker completed the future.
    """

    wait_ns: int
    calls: int = 0
    joined: int = 0
    completed: int = 0
    round_trip_ns: int = 0
    service_ns: int = 0
    cpu_ns: int | None = 0
    held_ns: int = 0
    reasons: Counter[str] = field(default_factory=Counter)


Sums = Mapping[int, Mapping[Function, CallSums]]


def sum_calls(ranks: Sequence[RankSummary], joined: JoinedCalls) -> dict[int, dict[Function, CallSums]]:
    """Return the calls of each rank by callee and function."""
    return {summary.rank: _sums_of(summary, joined) for summary in ranks if summary.rank in joined.uses}


def call_rows(joined: JoinedCalls, sums: Sums) -> list[dict[str, object]]:
    """Return rows of tables.RPC."""
    return [
        {
            "rank": rank,
            "worker": joined.uses[rank].worker,
            "callee": callee,
            "callee_rank": joined.rank_of_worker.get(callee),
            "function": function,
            "calls": of_function.calls,
            "joined": of_function.joined,
            "wait_ns": of_function.wait_ns,
            "completed": of_function.completed,
            "round_trip_ns": of_function.round_trip_ns if of_function.completed else None,
            "service_ns": of_function.service_ns if of_function.completed else None,
            "transit_ns": of_function.round_trip_ns - of_function.service_ns if of_function.completed else None,
        }
        for rank, functions in sums.items()
        for (callee, function), of_function in functions.items()
    ]


def _sums_of(summary: RankSummary, joined: JoinedCalls) -> dict[Function, CallSums]:
    use = joined.uses[summary.rank]
    steps, waits = complete_time(summary.steps), blocked_time(use)
    members: dict[Function, list[JoinedCall]] = defaultdict(list)
    for of_step in joined.calls[summary.rank]:
        if of_step.step is not None:
            members[of_step.call.callee, of_step.call.function].append(of_step)
    result = {}
    undirected = time_of([(wait.start_ns, wait.end_ns) for wait in use.waits if wait.number is None])
    directed = {wait.number: (wait.start_ns, wait.end_ns) for wait in use.waits if wait.number is not None}
    for function, calls in members.items():
        waited = time_of([directed[item.call.number] for item in calls if item.call.number in directed])
        waited = waited | (undirected & in_flight_time([item.call for item in calls], waits))
        of_function = result[function] = CallSums(wait_ns=(waited & waits & steps).len_ns)
        for item in calls:
            call, service = item.call, item.service
            of_function.calls += 1
            if service is None:
                of_function.reasons[_reason(call, joined.rank_of_worker)] += 1
                continue
            of_function.joined += 1
            if call.done_ns is not None:
                of_function.completed += 1
                of_function.round_trip_ns += call.done_ns - call.issued_ns
                of_function.service_ns += service.end_ns - service.start_ns
                if service.released_by is not None and service.returned_ns is not None:
                    of_function.held_ns += service.end_ns - service.returned_ns
                known = of_function.cpu_ns is not None and service.cpu_ns is not None
                of_function.cpu_ns = (of_function.cpu_ns or 0) + (service.cpu_ns or 0) if known else None
    return result


def _reason(call: RpcCall, rank_of_worker: Mapping[str, int]) -> str:
    if call.kind in _WITHOUT_ID:
        return _WITHOUT_ID[call.kind]
    if call.callee not in rank_of_worker:
        return NO_RECORDING
    return _NOT_OVER if call.done_ns is None else _OUTSIDE


def unjoined_calls(sums: Sums) -> Iterator[tuple[int, str, str, int]]:
    """Yield rank, callee, reason and number of the calls without a service."""
    for rank, functions in sums.items():
        counts: Counter[tuple[str, str]] = Counter()
        for (callee, _), of_function in functions.items():
            for reason, count in of_function.reasons.items():
                counts[callee, reason] += count
        for (callee, reason), count in sorted(counts.items()):
            yield rank, callee, reason, count


def function_rows(run: Run, sums: Sums) -> list[dict[str, object]]:
    """Return rows of tables.RPC_BY_FUNCTION, the most waited for first."""
    steps = {summary.rank: sum(step.complete for step in summary.steps) for summary in run.ranks}
    shares: dict[Function, list[tuple[int, CallSums]]] = defaultdict(list)
    for rank, functions in sums.items():
        for function, of_function in functions.items():
            shares[function].append((rank, of_function))
    rows = []
    for (callee, name), ranks in shares.items():
        completed = sum(of_function.completed for _, of_function in ranks)
        round_trip_ns = sum(of_function.round_trip_ns for _, of_function in ranks) / completed if completed else None
        service_ns = sum(of_function.service_ns for _, of_function in ranks) / completed if completed else None
        cpus_ns = [of_function.cpu_ns for _, of_function in ranks]
        cpu_ns = sum(filter(None, cpus_ns)) / completed if completed and None not in cpus_ns else None
        worst_rank, worst = max(ranks, key=lambda share: (share[1].wait_ns / steps[share[0]], -share[0]))
        rows.append(
            {
                "callee": callee,
                "function": name,
                "ranks": len(ranks),
                "calls": statistics.fmean(of_function.calls / steps[rank] for rank, of_function in ranks),
                "wait_ns": statistics.fmean(of_function.wait_ns / steps[rank] for rank, of_function in ranks),
                "round_trip_ns": round_trip_ns,
                "service_ns": service_ns,
                "cpu_ns": cpu_ns,
                "transit_ns": None if round_trip_ns is None or service_ns is None else round_trip_ns - service_ns,
                "worst_rank": worst_rank,
                "worst_wait_ns": worst.wait_ns / steps[worst_rank],
            }
        )
    return sorted(rows, key=lambda row: -float(str(row["wait_ns"])))
