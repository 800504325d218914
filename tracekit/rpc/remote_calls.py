"""Whether waiting for remote calls bounds the steps of the trainers that make them, and what keeps the servers busy.

A finding says where the most waited-for function spends its round trip. A server is busy by how many calls it serves at
a time, for whom, and where a call waits. Trainers of an asynchronous job have rates of their own; a finding names the
trainer for which the others wait at a server.

Callers record at different times. So the load of a server is not counted at an instant, but summed over callers: the
share of each one's steps in which a call of it is served. For callers that record at the same time it is the same.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tracekit.explain.step_time.step_rates import (
    HeldTime,
    find_slow_rates,
    slow_rate_finding,
    steps_per_s,
    waited_for_at_servers,
)
from tracekit.explain.step_time.tables import NAMED_WAITS
from tracekit.findings.finding import Finding
from tracekit.model.metadata import RpcService
from tracekit.model.notes import Note
from tracekit.model.run import Run, clocks_are_comparable
from tracekit.model.summary import RankSummary
from tracekit.rpc.calls import (
    NO_RECORDING,
    WHAT,
    CallSums,
    Function,
    JoinedCall,
    JoinedCalls,
    RemoteCalls,
    blocked_time,
    call_rows,
    function_rows,
    join_calls,
    sum_calls,
    time_of,
    unjoined_calls,
)
from tracekit.rpc.findings import REMOTE_CALLS_SHARE, waiting_for_remote_calls

_Clock = Callable[[int], int]


def remote_calls(run: Run) -> RemoteCalls:
    """Return the tables over all ranks, and findings on what bounds the steps and on trainers' rates."""
    joined = join_calls(run.ranks)
    sums, loads = sum_calls(run.ranks, joined), server_loads(run, joined)
    by_function, servers = function_rows(run, sums), server_rows(joined, loads)
    held = held_calls(joined)
    findings = [*trainer_findings(run, joined, held), *waiting_findings(run, sums, by_function, servers)]
    return RemoteCalls(
        calls=call_rows(joined, sums),
        by_function=by_function,
        unjoined=[
            {"rank": rank, "callee": callee, "reason": reason, "count": count}
            for rank, callee, reason, count in unjoined_calls(sums)
        ],
        trainers=trainer_rows(run, joined, held),
        servers=servers,
        service=service_rows(loads),
        findings=tuple(findings),
    )


def remote_call_notes(ranks: Sequence[RankSummary], all_selected: bool) -> list[Note]:
    """Return which calls could not be joined, and why. A callee that was not selected is not missing."""
    notes = []
    for rank, callee, reason, count in unjoined_calls(sum_calls(ranks, join_calls(ranks))):
        text = f"rank {rank}: {count} remote call{'s' * (count != 1)} to {callee} not joined to a service: {reason}"
        severity = "info"
        if reason == NO_RECORDING:
            if not all_selected:
                continue
            text += ", so what they wait for is not known; make the probe there too, before init_rpc"
            severity = "warning"
        notes.append(Note(id="unlinked", severity=severity, rank=rank, text=text))  # type: ignore[arg-type]
    return notes


def waiting_findings(
    run: Run,
    sums: Mapping[int, Mapping[Function, CallSums]],
    by_function: Sequence[Mapping[str, object]],
    servers: Sequence[Mapping[str, object]],
) -> Iterator[Finding]:
    """Yield a finding if the callers' waits bound their steps.

    by_function: rows of tables.RPC_BY_FUNCTION. servers: rows of tables.RPC_SERVERS.
    """
    callers = [summary for summary in run.ranks if sums.get(summary.rank)]
    steps = [step for summary in callers for step in summary.steps if step.complete]
    step_ns, wait_ns = sum(step.step_ns for step in steps), sum(waits_ns(summary) for summary in callers)
    if not step_ns or not by_function:
        return
    worst = by_function[0]
    callee, function = str(worst["callee"]), str(worst["function"])
    round_trip_ns, service_ns, cpu_ns = (_number(worst[name]) for name in ("round_trip_ns", "service_ns", "cpu_ns"))
    evidence: dict[str, object] = {
        "wait_share": wait_ns / step_ns,
        "callee": callee,
        "function": function,
        "no_replay": "remote calls are no part of the replay",
    }
    if round_trip_ns is not None and service_ns is not None:
        server = next((row for row in servers if row["worker"] == callee), {})
        threads = _number(server.get("threads"))
        of_function = [functions[key] for functions in sums.values() if (key := (callee, function)) in functions]
        held_ns = sum(of_rank.held_ns for of_rank in of_function) / sum(of_rank.completed for of_rank in of_function)
        evidence |= {
            "round_trip_ns": int(round_trip_ns),
            "service_ns": int(service_ns),
            "transit_ns": int(round_trip_ns - service_ns),
            "cpu_ns": None if cpu_ns is None else int(cpu_ns),
            "held_ns": int(held_ns),
            "server_load": _number(server.get("load")),
            "server_threads": None if threads is None else int(threads),
        }
    yield waiting_for_remote_calls(
        cause="rpc",
        time_ns=wait_ns // len(steps),
        evidence=evidence,
        conditions=[REMOTE_CALLS_SHARE.reached_by(wait_ns / step_ns)],
    )


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


@dataclass(frozen=True, kw_only=True)
class Load:
    """What one caller asks of one function of one server. Times are sums over `count` calls, in ns.

    Attributes:
        load: how many of its calls are being served at a time, on average over its steps.
        cpu_ns: None where it is not known of all.
        held_ns: from the return of an asynchronous function to the completion of its future.
        request_ns: from the issue of a call to the begin of its service; None where clocks cannot be compared.
        reply_ns: from the end of its service to its completion at the caller; None likewise.
    """

    rank: int
    callee: str
    function: str
    count: int
    load: float
    rate: float
    service_ns: int
    cpu_ns: int | None
    held_ns: int
    request_ns: int | None
    reply_ns: int | None

    @property
    def cpu_load(self) -> float | None:
        """Return how many CPUs its calls keep busy at the server; None where that is not known."""
        return None if self.cpu_ns is None or not self.service_ns else self.load * self.cpu_ns / self.service_ns


def server_loads(run: Run, joined: JoinedCalls) -> list[Load]:
    """Return the loads of all servers with a recording, by caller and function."""
    comparable = clocks_are_comparable(run.ranks, run.clocks)
    to_run = {clock.rank: clock.moment_to_run for clock in run.clocks} if comparable else {}
    loads = []
    for summary in run.ranks:
        steps_ns = sum(step.step_ns for step in summary.steps if step.complete)
        members: dict[Function, list[JoinedCall]] = defaultdict(list)
        for item in joined.calls.get(summary.rank, ()):
            if item.step is not None and item.service is not None:
                members[item.call.callee, item.call.function].append(item)
        for (callee, function), calls in members.items():
            clocks = (to_run.get(summary.rank), to_run.get(joined.rank_of_worker[callee]))
            loads.append(_load(summary.rank, callee, function, calls, steps_ns, clocks))
    return loads


def _load(
    rank: int,
    callee: str,
    function: str,
    calls: Sequence[JoinedCall],
    steps_ns: int,
    clocks: tuple[_Clock | None, _Clock | None],
) -> Load:
    services = [item.service for item in calls if item.service is not None]
    service_ns = sum(_served_ns(service) for service in services)
    cpus_ns = [service.cpu_ns for service in services if service.cpu_ns is not None]
    request_ns = reply_ns = None
    of_caller, of_callee = clocks
    over = [(item.call, item.service) for item in calls if item.call.done_ns is not None and item.service is not None]
    if of_caller is not None and of_callee is not None and len(over) == len(calls):
        request_ns = sum(of_callee(service.start_ns) - of_caller(call.issued_ns) for call, service in over)
        reply_ns = sum(of_caller(call.done_ns or 0) - of_callee(service.end_ns) for call, service in over)
    return Load(
        rank=rank,
        callee=callee,
        function=function,
        count=len(services),
        load=service_ns / max(steps_ns, 1),
        rate=1e9 * len(services) / max(steps_ns, 1),
        service_ns=service_ns,
        cpu_ns=sum(cpus_ns) if len(cpus_ns) == len(services) else None,
        held_ns=sum(service.end_ns - service.start_ns for service in services) - service_ns,
        request_ns=request_ns,
        reply_ns=reply_ns,
    )


def _served_ns(service: RpcService) -> int:
    """Return how long a thread ran the function."""
    return (service.end_ns if service.returned_ns is None else service.returned_ns) - service.start_ns


def server_rows(joined: JoinedCalls, loads: Sequence[Load]) -> list[dict[str, object]]:
    """Return rows of tables.RPC_SERVERS, the busiest server first."""
    rows: list[dict[str, object]] = []
    for callee in dict.fromkeys(load.callee for load in loads):
        rank = joined.rank_of_worker[callee]
        of_server = [load for load in loads if load.callee == callee]
        by_rank = {load.rank: 0.0 for load in of_server}
        for load in of_server:
            by_rank[load.rank] += load.load
        whole = sum(by_rank.values())
        most = max(by_rank, key=lambda caller: (by_rank[caller], -caller))
        cpu_loads = [load.cpu_load for load in of_server if load.cpu_load is not None]
        rows.append(
            {
                "rank": rank,
                "worker": callee,
                "callers": len(by_rank),
                "calls_per_s": sum(load.rate for load in of_server),
                "load": whole,
                "cpu_load": sum(cpu_loads) if len(cpu_loads) == len(of_server) else None,
                "threads": joined.uses[rank].threads,
                "main_caller": most,
                "main_caller_share": by_rank[most] / whole if whole else None,
            }
        )
    return sorted(rows, key=lambda row: -float(str(row["load"])))


def service_rows(loads: Sequence[Load]) -> list[dict[str, object]]:
    """Return rows of tables.RPC_SERVICE, the largest share of a server first."""
    whole: dict[str, float] = defaultdict(float)
    for load in loads:
        whole[load.callee] += load.load

    def mean(total_ns: int | None, count: int) -> float | None:
        return None if total_ns is None else total_ns / count

    rows: list[dict[str, object]] = [
        {
            "callee": load.callee,
            "function": load.function,
            "rank": load.rank,
            "calls_per_s": load.rate,
            "load": load.load,
            "share": load.load / whole[load.callee] if whole[load.callee] else None,
            "service_ns": load.service_ns / load.count,
            "cpu_ns": mean(load.cpu_ns, load.count),
            "held_ns": load.held_ns / load.count,
            "request_ns": mean(load.request_ns, load.count),
            "reply_ns": mean(load.reply_ns, load.count),
        }
        for load in loads
    ]
    return sorted(rows, key=lambda row: (str(row["callee"]), -float(str(row["load"]))))


def waits_ns(summary: RankSummary) -> int:
    """Return how long a rank waits for remote calls in its complete steps."""
    return sum(wait.total_ns for wait in summary[NAMED_WAITS] if wait.what == WHAT)


def held_calls(joined: JoinedCalls) -> list[HeldTime]:
    """Return how long calls in complete steps waited at a server for other trainers, by pair and server.

    It is from the return of their functions to the end of their futures.
    """
    times_ns: Counter[tuple[int, int | None, str]] = Counter()
    for rank, calls in joined.calls.items():
        for item in calls:
            service = item.service
            if item.step is None or service is None or service.returned_ns is None or service.released_by is None:
                continue
            if service.released_by.caller == service.caller:
                continue
            key = (rank, joined.rank_of_id.get(service.released_by.caller), item.call.callee)
            times_ns[key] += service.end_ns - service.returned_ns
    return [
        HeldTime(rank=rank, by=by, server=callee, total_ns=total_ns)
        for (rank, by, callee), total_ns in times_ns.items()
    ]


def trainer_rows(run: Run, joined: JoinedCalls, held: Sequence[HeldTime]) -> list[dict[str, object]]:
    """Return rows of tables.RPC_TRAINERS, one for each rank with complete steps that makes remote calls."""
    rows: list[dict[str, object]] = []
    for summary in _trainers(run, joined):
        steps = [step for step in summary.steps if step.complete]
        rows.append(
            {
                "rank": summary.rank,
                "worker": joined.uses[summary.rank].worker,
                "steps": len(steps),
                "step_ns": sum(step.step_ns for step in steps) / len(steps),
                "steps_per_s": steps_per_s(summary),
                "compute_ns": sum(step.compute_ns for step in steps) / len(steps),
                "wait_ns": waits_ns(summary) / len(steps),
                "held_ns": sum(pair.total_ns for pair in held if pair.rank == summary.rank) / len(steps),
            }
        )
    return rows


def _trainers(run: Run, joined: JoinedCalls) -> list[RankSummary]:
    return [
        summary for summary in run.ranks if summary.is_measured and _steps(summary) and joined.calls.get(summary.rank)
    ]


def _steps(summary: RankSummary) -> int:
    return sum(step.complete for step in summary.steps)


def trainer_findings(run: Run, joined: JoinedCalls, held: Sequence[HeldTime]) -> Iterator[Finding]:
    """Yield findings on the trainer that others wait for at a server, else on those that are slow.

    Where ranks communicate directly, the sections on stragglers and replays say who waits for whom.
    """
    trainers = _trainers(run, joined)
    if len(trainers) < 2 or not run.ranks_are_independent:
        return
    names = {rank: use.worker for rank, use in joined.uses.items()}
    if held:
        yield from waited_for_at_servers(trainers, held, "rpc", names)
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
        yield slow_rate_finding(slow, names=names)


def _own_times_ns(summary: RankSummary, joined: JoinedCalls) -> list[int]:
    """Return how long each complete step of a trainer is without its waits for remote calls."""
    blocked = blocked_time(joined.uses[summary.rank])
    steps = [(step.start_ns, step.start_ns + step.step_ns) for step in summary.steps if step.complete]
    return [end_ns - start_ns - (blocked & time_of([(start_ns, end_ns)])).len_ns for start_ns, end_ns in steps]
