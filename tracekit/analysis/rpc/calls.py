"""Remote calls: how long a step waits for them, and what of a round trip is service at the callee.

A call is joined to its service by its id. The rest of its round trip is transit and queueing. It is the difference of
two durations, each on one clock: clocks of different ranks are not compared.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from tracekit.analysis.finding import Finding
from tracekit.analysis.rpc import columns
from tracekit.analysis.rpc.parts import REMOTE_CALLS
from tracekit.analysis.rpc.per_rank import WHAT
from tracekit.analysis.rpc.waits import blocked_time, complete_time, in_flight_time, time_of
from tracekit.analysis.step_time.parts import NAMED_WAITS
from tracekit.analysis.table import Frame
from tracekit.model.metadata import RpcCall, RpcService, RpcUse
from tracekit.model.notes import Note
from tracekit.model.run import Run
from tracekit.model.summary import RankSummary

_NOTABLE = 0.2  # of a step
_WITHOUT_ID = {
    "builtin": "a call of a builtin operator carries no id",
    "script": "a call of a TorchScript function carries no id",
    "fetch": "the fetch of a remote value carries no id",
}
_NO_RECORDING = "the callee has no recording"
_OUTSIDE = "served outside the callee's recording"
_NOT_OVER = "not over when the recording ended"

__all__ = ["RemoteCalls", "remote_call_notes", "remote_calls"]

_Function = tuple[str, str]
"""Callee and function."""


@dataclass(frozen=True, kw_only=True)
class RemoteCalls:
    """Remote calls of all ranks; empty without RPC.

    Attributes:
        calls: rows of columns.RPC, the calls that a rank issued in its complete steps.
        by_function: rows of columns.RPC_BY_FUNCTION, the most waited for first.
        unjoined: rows of columns.RPC_UNJOINED.
    """

    calls: Frame = Frame(columns.RPC)
    by_function: Frame = Frame(columns.RPC_BY_FUNCTION)
    unjoined: Frame = Frame(columns.RPC_UNJOINED)
    findings: tuple[Finding, ...]


@dataclass(kw_only=True)
class _Sums:
    """Calls of one rank to one function. Times are of the `completed` ones: joined, and seen to end."""

    wait_ns: int
    calls: int = 0
    joined: int = 0
    completed: int = 0
    round_trip_ns: int = 0
    service_ns: int = 0
    reasons: Counter[str] = field(default_factory=Counter)


def remote_calls(run: Run) -> RemoteCalls:
    """Return the tables over all ranks, and a finding if remote calls bound the step."""
    sums = _joined(run.ranks)
    places = _places(run.ranks)
    rows = [
        {
            "rank": summary.rank,
            "worker": use.worker,
            "callee": callee,
            "callee_rank": places.get(callee),
            "function": function,
            "calls": sums_of_function.calls,
            "joined": sums_of_function.joined,
            "wait_ns": sums_of_function.wait_ns,
            "completed": sums_of_function.completed,
            "round_trip_ns": sums_of_function.round_trip_ns if sums_of_function.completed else None,
            "service_ns": sums_of_function.service_ns if sums_of_function.completed else None,
            "transit_ns": sums_of_function.round_trip_ns - sums_of_function.service_ns
            if sums_of_function.completed
            else None,
        }
        for summary in run.ranks
        if (use := summary[REMOTE_CALLS]) is not None
        for (callee, function), sums_of_function in sums[summary.rank].items()
    ]
    return RemoteCalls(
        calls=rows,
        by_function=_by_function(run, sums),
        unjoined=[
            {"rank": rank, "callee": callee, "reason": reason, "count": count}
            for rank, callee, reason, count in _unjoined(sums)
        ],
        findings=tuple(_finding(run, sums)),
    )


def remote_call_notes(ranks: Sequence[RankSummary], all_selected: bool) -> list[Note]:
    """Return which calls could not be joined, and why. A callee that was not selected is not missing."""
    notes = []
    for rank, callee, reason, count in _unjoined(_joined(ranks)):
        text = f"rank {rank}: {count} remote call{'s' * (count != 1)} to {callee} not joined to a service: {reason}"
        severity = "info"
        if reason == _NO_RECORDING:
            if not all_selected:
                continue
            text += ", so what they wait for is not known; make the probe there too, before init_rpc"
            severity = "warning"
        notes.append(Note(kind="unlinked", severity=severity, rank=rank, text=text))  # type: ignore[arg-type]
    return notes


def _wait_ns(summary: RankSummary) -> int:
    return sum(wait.total_ns for wait in summary[NAMED_WAITS] if wait.what == WHAT)


def _places(ranks: Sequence[RankSummary]) -> dict[str, int]:
    """Return the rank of each worker that has a recording."""
    return {use.worker: summary.rank for summary in ranks if (use := summary[REMOTE_CALLS]) is not None}


def _joined(ranks: Sequence[RankSummary]) -> dict[int, dict[_Function, _Sums]]:
    """Return the calls of each rank by callee and function."""
    services: dict[tuple[int, int], RpcService] = {
        (service.caller, service.number): service
        for summary in ranks
        if (use := summary[REMOTE_CALLS]) is not None
        for service in use.services
    }
    places = _places(ranks)
    return {
        summary.rank: _sums_of(summary, use, services, places)
        for summary in ranks
        if (use := summary[REMOTE_CALLS]) is not None
    }


def _sums_of(
    summary: RankSummary, use: RpcUse, services: dict[tuple[int, int], RpcService], places: dict[str, int]
) -> dict[_Function, _Sums]:
    steps, waits = complete_time(summary.steps), blocked_time(use)
    issued_ns = np.array([call.issued_ns for call in use.calls], dtype=np.int64)
    place = np.searchsorted(steps.start_ns, issued_ns, side="right") - 1
    members: dict[_Function, list[tuple[RpcCall, RpcService | None]]] = defaultdict(list)
    for i, call in enumerate(use.calls):
        if place[i] >= 0 and call.issued_ns < steps.end_ns[place[i]]:
            members[call.callee, call.function].append((call, services.get((use.worker_id, call.number))))
    result = {}
    undirected = time_of([(wait.start_ns, wait.end_ns) for wait in use.waits if wait.number is None])
    directed = {wait.number: (wait.start_ns, wait.end_ns) for wait in use.waits if wait.number is not None}
    for function, calls in members.items():
        waited = time_of([directed[call.number] for call, _ in calls if call.number in directed])
        waited = waited | (undirected & in_flight_time([call for call, _ in calls], waits))
        sums_of_function = result[function] = _Sums(wait_ns=(waited & waits & steps).len_ns)
        for call, service in calls:
            sums_of_function.calls += 1
            if service is None:
                sums_of_function.reasons[_reason(call, places)] += 1
                continue
            sums_of_function.joined += 1
            if call.done_ns is not None:
                sums_of_function.completed += 1
                sums_of_function.round_trip_ns += call.done_ns - call.issued_ns
                sums_of_function.service_ns += service.end_ns - service.start_ns
    return result


def _reason(call: RpcCall, places: dict[str, int]) -> str:
    if call.kind in _WITHOUT_ID:
        return _WITHOUT_ID[call.kind]
    if call.callee not in places:
        return _NO_RECORDING
    return _NOT_OVER if call.done_ns is None else _OUTSIDE


def _unjoined(sums: dict[int, dict[_Function, _Sums]]) -> Iterator[tuple[int, str, str, int]]:
    """Yield rank, callee, reason and number of the calls without a service."""
    for rank, functions in sums.items():
        counts: Counter[tuple[str, str]] = Counter()
        for (callee, _), sums_of_function in functions.items():
            for reason, count in sums_of_function.reasons.items():
                counts[callee, reason] += count
        for (callee, reason), count in sorted(counts.items()):
            yield rank, callee, reason, count


def _by_function(run: Run, sums: dict[int, dict[_Function, _Sums]]) -> list[dict[str, object]]:
    steps = {summary.rank: sum(step.complete for step in summary.steps) for summary in run.ranks}
    shares: dict[_Function, list[tuple[int, _Sums]]] = defaultdict(list)
    for rank, functions in sums.items():
        for function, sums_of_function in functions.items():
            shares[function].append((rank, sums_of_function))
    rows = []
    for (callee, name), ranks in shares.items():
        completed = sum(sums_of_function.completed for _, sums_of_function in ranks)
        round_trip_ns = (
            sum(sums_of_function.round_trip_ns for _, sums_of_function in ranks) / completed if completed else None
        )
        service_ns = (
            sum(sums_of_function.service_ns for _, sums_of_function in ranks) / completed if completed else None
        )
        worst_rank, worst = max(ranks, key=lambda share: (share[1].wait_ns / steps[share[0]], -share[0]))
        rows.append(
            {
                "callee": callee,
                "function": name,
                "ranks": len(ranks),
                "calls": statistics.fmean(sums_of_function.calls / steps[rank] for rank, sums_of_function in ranks),
                "wait_ns": statistics.fmean(sums_of_function.wait_ns / steps[rank] for rank, sums_of_function in ranks),
                "round_trip_ns": round_trip_ns,
                "service_ns": service_ns,
                "transit_ns": None if round_trip_ns is None or service_ns is None else round_trip_ns - service_ns,
                "worst_rank": worst_rank,
                "worst_wait_ns": worst.wait_ns / steps[worst_rank],
            }
        )
    return sorted(rows, key=lambda row: -float(str(row["wait_ns"])))


def _finding(run: Run, sums: dict[int, dict[_Function, _Sums]]) -> list[Finding]:
    """Find that the callers' waits bound the step, and where the most waited-for function spends its round trip."""
    callers = [summary for summary in run.ranks if sums.get(summary.rank)]
    steps = [step for summary in callers for step in summary.steps if step.complete]
    step_ns, wait_ns = sum(step.step_ns for step in steps), sum(_wait_ns(summary) for summary in callers)
    if not step_ns or wait_ns < _NOTABLE * step_ns:
        return []
    rows = _by_function(run, sums)
    if not rows:
        return []
    worst = rows[0]
    callee, function = worst["callee"], worst["function"]
    text = f"waiting for remote calls takes {wait_ns / step_ns:.0%} of the step, most for {function} on {callee}"
    action = f"send less to {callee}, in fewer calls, or ahead of need"
    evidence: dict[str, object] = {
        "wait_share": wait_ns / step_ns,
        "callee": callee,
        "function": function,
        "no_replay": "remote calls are no part of the replay",
    }
    if worst["round_trip_ns"] is None:
        action = f"record {callee} too, to see how much of that is its work"
    else:
        round_trip_ns, service_ns = float(str(worst["round_trip_ns"])), float(str(worst["service_ns"]))
        transit_ns = round_trip_ns - service_ns
        text += f"; {service_ns / max(round_trip_ns, 1):.0%} of a round trip is service there"
        if 2 * service_ns >= round_trip_ns:
            action = f"make {function} faster, or spread it over more processes than {callee}"
        evidence |= {"round_trip_ns": int(round_trip_ns), "service_ns": int(service_ns), "transit_ns": int(transit_ns)}
    time_ns = wait_ns // len(steps)
    return [Finding(severity="warning", text=text, cause="rpc", time_ns=time_ns, action=action, evidence=evidence)]
