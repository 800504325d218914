"""What keeps a server busy: how many calls it serves at a time, for whom, and where a call waits.

Callers record at different times. So the load of a server is not counted at an instant, but summed over callers: the
share of each one's steps in which a call of it is served. Of callers that record at the same time it is the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tracekit.analysis.rpc.calls import Function
from tracekit.analysis.rpc.joined import JoinedCall, JoinedCalls
from tracekit.model.clocks import clocks_are_comparable
from tracekit.model.metadata import RpcService
from tracekit.model.run import Run

__all__ = ["Load", "server_loads", "server_rows", "service_rows"]


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


_Clock = Callable[[int], int]


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
    """Return rows of columns.RPC_SERVERS, the busiest server first."""
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
    """Return rows of columns.RPC_SERVICE, the largest share of a server first."""
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
