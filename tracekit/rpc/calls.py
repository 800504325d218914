"""How long a step waits for remote calls, and what of a round trip is service at the callee.

A call is joined to its service by its id. The rest of its round trip is transit and queueing. It is the difference of
two durations, each on one clock: clocks of different ranks are not compared.

The part `REMOTE_CALLS` of a rank's summary has its remote calls. `RemoteCalls` is the result for all ranks, with the
tables that are declared here.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tracekit.explain.step_time.tables import NamedWait
from tracekit.findings.finding import Finding
from tracekit.model.intervals import Intervals
from tracekit.model.metadata import RpcCall, RpcService, RpcUse
from tracekit.model.run import Run
from tracekit.model.summary import Part, RankSummary, StepParts
from tracekit.model.table import RANK, Column, Display, Frame, Table
from tracekit.rank.recorded_steps import RecordedSteps

NO_RECORDING = "the callee has no recording"
_WITHOUT_ID = {
    "builtin": "a call of a builtin operator carries no id",
    "script": "a call of a TorchScript function carries no id",
    "fetch": "the fetch of a remote value carries no id",
}
_OUTSIDE = "served outside the callee's recording"
_NOT_OVER = "not over when the recording ended"

Function = tuple[str, str]
"""Callee and function."""

_CALLEE = Column("callee", "str", "", "Name of the worker that is called.")
RPC = Table(
    "rpc",
    (
        RANK,
        Column("worker", "str", "", "Its name as a worker of RPC."),
        _CALLEE,
        Column("callee_rank", "int?", "", "Its rank; null when it has no recording."),
        Column("function", "str", "", "Function or method, or builtin operator; to_here: the fetch of a remote value."),
        Column("calls", "int", "", "Calls issued in complete steps."),
        Column("joined", "int", "", "Those joined to their service at the callee."),
        Column("wait_ns", "int", "ns", "The training thread waits for one, or for several futures of them."),
        Column("completed", "int", "", "Joined calls that were seen to complete, which the following times are of."),
        Column("round_trip_ns", "int?", "ns", "Sum from issue to completion, on the caller's clock."),
        Column("service_ns", "int?", "ns", "Sum of the time in the function, on the callee's clock."),
        Column("transit_ns", "int?", "ns", "The rest of the round trips: transit, queueing, packing."),
    ),
)
RPC_BY_FUNCTION = Table(
    "rpc_by_function",
    (
        _CALLEE,
        Column("function", "str", "", "Function or method, or builtin operator.", longest=20),
        Column("ranks", "int", "", "Ranks that call it; the means are over them and their complete steps."),
        Column("calls", "float", "", "Mean number a step."),
        Column("wait_ns", "float", "ns", "Mean time a step in which the training thread waits for one."),
        Column("round_trip_ns", "float?", "ns", "Mean of a joined call from issue to completion."),
        Column("service_ns", "float?", "ns", "Mean time of it in the function at the callee."),
        Column("cpu_ns", "float?", "ns", "Mean time that the callee's thread runs on a CPU in it; the rest it waits."),
        Column("transit_ns", "float?", "ns", "The rest of it: transit, queueing, packing."),
        Column("worst_rank", "int", "", "The rank with the longest wait."),
        Column("worst_wait_ns", "float", "ns", "Its wait a step."),
    ),
    Display(
        "Remote calls, the most waited for first (ms: the wait a step, the rest a call)",
        "function | callee | calls | wait_ns | round_trip_ns | service_ns | transit, queue=transit_ns "
        "| {worst_rank}: {worst_wait_ns}",
        most=12,
        bars="wait_ns",
    ),
    in_json=False,
)
RPC_UNJOINED = Table(
    "rpc_unjoined",
    (
        RANK,
        _CALLEE,
        Column("reason", "str", "", "Why no service was found."),
        Column("count", "int", "", "Calls issued in complete steps."),
    ),
)
RPC_TRAINERS = Table(
    "rpc_trainers",
    (
        RANK,
        Column("worker", "str", "", "Its name as a worker of RPC.", longest=12),
        Column("steps", "int", "", "Complete steps, which all figures are of."),
        Column("step_ns", "float", "ns", "Mean step."),
        Column("steps_per_s", "float?", "1/s", "Steps a second."),
        Column("compute_ns", "float", "ns", "Mean time a step that it computes."),
        Column("wait_ns", "float", "ns", "Mean time a step that its training thread waits for remote calls."),
        Column("held_ns", "float", "ns", "Mean time a step that its calls wait at a server for another trainer's."),
    ),
    Display(
        "Trainers (ms a step; held: at a server, for another trainer's call)",
        "trainer=worker | rank | steps /s=steps_per_s | step_ns | compute_ns | waits=wait_ns | held_ns",
        most=12,
    ),
)
RPC_SERVERS = Table(
    "rpc_servers",
    (
        RANK,
        Column("worker", "str", "", "Its name as a worker of RPC."),
        Column("callers", "int", "", "Ranks whose calls it served in their complete steps."),
        Column("calls_per_s", "float", "1/s", "Their calls a second, at each caller's own rate."),
        Column("load", "float", "", "How many of them are being served at a time, on average."),
        Column("cpu_load", "float?", "", "How many CPUs that keeps busy."),
        Column("threads", "int?", "", "Threads that run requests there."),
        Column("main_caller", "int", "", "The rank with the largest part of the load."),
        Column("main_caller_share", "float?", "ratio", "Its part."),
    ),
)
RPC_SERVICE = Table(
    "rpc_service",
    (
        _CALLEE,
        Column("function", "str", "", "Function or method.", longest=14),
        Column("rank", "int", "", "The calling rank."),
        Column("calls_per_s", "float", "1/s", "Calls a second in its complete steps."),
        Column("load", "float", "", "How many of them are being served at a time, on average."),
        Column("share", "float?", "ratio", "Part of the callee's load."),
        Column("service_ns", "float", "ns", "Mean time in which a thread runs the function."),
        Column("cpu_ns", "float?", "ns", "Mean time of that on a CPU."),
        Column("held_ns", "float", "ns", "Mean time from the return of an asynchronous function to its future's end."),
        Column("request_ns", "float?", "ns", "Mean time from issue to service: packing, transit, queue for a thread."),
        Column("reply_ns", "float?", "ns", "Mean time from the end of the service to the completion at the caller."),
    ),
    Display(
        "Service by function and caller (ms a call; share: of the callee's service time)",
        "function | callee | rank | calls /s=calls_per_s | request_ns | service_ns | CPU=cpu_ns | held_ns "
        "| reply_ns | share",
        most=12,
    ),
)

WHAT = "remote calls"


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
        rank_of_worker: the rank of each worker that has a recording, by name.
        rank_of_id: the same ranks by the ids of the workers.
    """

    uses: Mapping[int, RpcUse]
    calls: Mapping[int, Sequence[JoinedCall]]
    rank_of_worker: Mapping[str, int]
    rank_of_id: Mapping[int, int]


def join_calls(ranks: Sequence[RankSummary]) -> JoinedCalls:
    """Return the remote calls of these ranks."""
    uses = {summary.rank: use for summary in ranks if (use := summary[REMOTE_CALLS]) is not None}
    services = {(service.caller, service.number): service for use in uses.values() for service in use.services}
    return JoinedCalls(
        uses=uses,
        calls={
            summary.rank: _calls_of(summary, uses[summary.rank], services) for summary in ranks if summary.rank in uses
        },
        rank_of_worker={use.worker: rank for rank, use in uses.items()},
        rank_of_id={use.worker_id: rank for rank, use in uses.items()},
    )


def _calls_of(summary: RankSummary, use: RpcUse, services: Mapping[tuple[int, int], RpcService]) -> list[JoinedCall]:
    complete = sorted(
        (step.start_ns, step.start_ns + step.step_ns, step.step) for step in summary.steps if step.complete
    )
    starts_ns = np.array([start_ns for start_ns, _, _ in complete], dtype=np.int64)
    calls = sorted(use.calls, key=lambda call: call.issued_ns)
    step_indices = (
        np.searchsorted(starts_ns, np.array([call.issued_ns for call in calls], dtype=np.int64), side="right") - 1
    )
    return [
        JoinedCall(
            call=call,
            step=complete[step_index][2] if step_index >= 0 and call.issued_ns < complete[step_index][1] else None,
            service=services.get((use.worker_id, call.number)),
        )
        for call, step_index in zip(calls, step_indices.tolist(), strict=True)
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


@dataclass(frozen=True, kw_only=True)
class RemoteCalls:
    """Remote calls of all ranks; empty without RPC.

    Attributes:
        calls: rows of RPC, the calls that a rank issued in its complete steps.
        by_function: rows of RPC_BY_FUNCTION, the most waited for first.
        unjoined: rows of RPC_UNJOINED.
        trainers: rows of RPC_TRAINERS.
        servers: rows of RPC_SERVERS, the busiest first.
        service: rows of RPC_SERVICE.
    """

    calls: Frame = Frame(RPC)
    by_function: Frame = Frame(RPC_BY_FUNCTION)
    unjoined: Frame = Frame(RPC_UNJOINED)
    trainers: Frame = Frame(RPC_TRAINERS)
    servers: Frame = Frame(RPC_SERVERS)
    service: Frame = Frame(RPC_SERVICE)
    findings: tuple[Finding, ...]

    @classmethod
    def empty(cls) -> RemoteCalls:
        """Return the result of a run without RPC."""
        return cls(calls=[], by_function=[], unjoined=[], trainers=[], servers=[], service=[], findings=())


def _merged(windows: Sequence[RpcUse | None]) -> RpcUse | None:
    """Return all windows of one worker as one."""
    uses = [window for window in windows if window is not None]
    if not uses:
        return None
    return replace(
        uses[0],
        calls=[call for use in uses for call in use.calls],
        services=[service for use in uses for service in use.services],
        waits=[wait for use in uses for wait in use.waits],
    )


REMOTE_CALLS: Part[RpcUse | None] = Part(name="remote_calls", type=RpcUse | None, empty=lambda: None, merge=_merged)


def remote_calls_of(recorded: RecordedSteps) -> RpcUse | None:
    """Return what a rank called and served."""
    metadata = recorded.trace.header.metadata
    return None if metadata is None else metadata.rpc


def waits_of(recorded: RecordedSteps) -> tuple[NamedWait, ...]:
    """Return the time in the complete steps in which the training thread was blocked in a wait for remote calls."""
    use = remote_calls_of(recorded)
    if use is None:
        return ()
    return (NamedWait(what=WHAT, total_ns=(blocked_time(use) & complete_time(recorded.steps)).len_ns),)


def complete_time(steps: Sequence[StepParts]) -> Intervals:
    """Return the time of the complete steps."""
    return time_of([(step.start_ns, step.start_ns + step.step_ns) for step in steps if step.complete])


def blocked_time(use: RpcUse) -> Intervals:
    """Return when the thread was blocked while a remote call was in flight. It also waits for other futures."""
    blocked = time_of([(wait.start_ns, wait.end_ns) for wait in use.waits])
    return blocked & in_flight_time(use.calls, blocked)


def in_flight_time(calls: Sequence[RpcCall], until: Intervals) -> Intervals:
    """Return the time from issue to completion.

    A call that was not seen to complete may be waited for until the end of `until`.
    """
    last_ns = int(until.end_ns[-1]) if len(until) else 0
    ends = [last_ns if call.done_ns is None else call.done_ns for call in calls]
    return time_of([(call.issued_ns, max(end, call.issued_ns)) for call, end in zip(calls, ends, strict=True)])


def time_of(pairs: Sequence[tuple[int, int]]) -> Intervals:
    """Return the union of pairs of start and end, ns."""
    both = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return Intervals.union_of(both[:, 0], both[:, 1])
