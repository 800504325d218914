"""Whether waiting for remote calls bounds the steps, and where the most waited-for function spends its round trip."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tracekit.analysis.finding import Finding
from tracekit.analysis.rpc.calls import CallSums, Function
from tracekit.analysis.rpc.trainers import waits_ns
from tracekit.model.run import Run

_NOTABLE = 0.2  # of a step
_SERVICE = 0.5  # of a round trip: the service decides
_ON_CPU = 0.5  # of the service: less, and the function itself waits for something
_HELD = 0.5  # of the service: it waits for the calls of others
_FULL = 0.8  # of a server's threads: calls queue for them

__all__ = ["waiting_findings"]


def waiting_findings(
    run: Run,
    sums: Mapping[int, Mapping[Function, CallSums]],
    by_function: Sequence[Mapping[str, object]],
    servers: Sequence[Mapping[str, object]],
) -> Iterator[Finding]:
    """Yield a finding if the callers' waits bound their steps.

    by_function: rows of columns.RPC_BY_FUNCTION. servers: rows of columns.RPC_SERVERS.
    """
    callers = [summary for summary in run.ranks if sums.get(summary.rank)]
    steps = [step for summary in callers for step in summary.steps if step.complete]
    step_ns, wait_ns = sum(step.step_ns for step in steps), sum(waits_ns(summary) for summary in callers)
    if not step_ns or wait_ns < _NOTABLE * step_ns or not by_function:
        return
    worst = by_function[0]
    callee, function = str(worst["callee"]), str(worst["function"])
    text = f"waiting for remote calls takes {wait_ns / step_ns:.0%} of the step, most for {function} on {callee}"
    action = f"send less to {callee}, in fewer calls, or ahead of need"
    evidence: dict[str, object] = {
        "wait_share": wait_ns / step_ns,
        "callee": callee,
        "function": function,
        "no_replay": "remote calls are no part of the replay",
    }
    round_trip_ns, service_ns, cpu_ns = (_number(worst[name]) for name in ("round_trip_ns", "service_ns", "cpu_ns"))
    if round_trip_ns is None or service_ns is None:
        action = f"record {callee} too, to see how much of that is its work"
    else:
        text += f"; {service_ns / max(round_trip_ns, 1):.0%} of a round trip is service there"
        server = next((row for row in servers if row["worker"] == callee), {})
        threads, load = _number(server.get("threads")), _number(server.get("load"))
        of_function = [functions[key] for functions in sums.values() if (key := (callee, function)) in functions]
        held_ns = sum(part.held_ns for part in of_function) / sum(part.completed for part in of_function)
        if held_ns >= _HELD * service_ns:
            text += ", most of it until other calls have come"
            action = f"let {callee} answer before all calls have come, or have trainers send them at the same time"
        elif service_ns >= _SERVICE * round_trip_ns:
            action = f"make {function} faster, or spread it over more processes than {callee}"
            if cpu_ns is not None and cpu_ns < _ON_CPU * service_ns:
                text += f", {cpu_ns / max(service_ns, 1):.0%} of that on a CPU"
                action = (
                    f"make {function} faster: see what it waits for on {callee}, such as a lock, another process or a "
                    "device"
                )
        elif threads and load is not None and load >= _FULL * threads:
            text += f"; its {threads:.0f} threads are busy"
            action = f"give {callee} more threads (num_worker_threads), or serve from more processes"
        transit_ns = round_trip_ns - service_ns
        evidence |= {"round_trip_ns": int(round_trip_ns), "service_ns": int(service_ns), "transit_ns": int(transit_ns)}
        evidence |= {"server_load": load, "server_threads": None if threads is None else int(threads)}
    yield Finding(
        severity="warning",
        text=text,
        cause="rpc",
        time_ns=wait_ns // len(steps),
        action=action,
        evidence=evidence,
    )


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
