"""Findings on remote calls: of trainers that wait for parameter servers, and of servers that hold their answers."""

from __future__ import annotations

from tracekit.findings.catalogue import Sentence, entry
from tracekit.findings.finding import Threshold

REMOTE_CALLS_SHARE = Threshold(0.2, "waiting for remote calls, as a share of the step")

_HELD = 0.5  # of the service: the function returned, and the answer waited
_SERVICE = 0.5  # of a round trip
_ON_CPU = 0.5  # of the service
_FULL = 0.8  # of a server's threads


@entry(
    "waiting-for-remote-calls",
    "Remote calls",
    "rpc",
    REMOTE_CALLS_SHARE,
    example={
        "wait_share": 0.52,
        "callee": "ps0",
        "function": "update_and_fetch",
        "round_trip_ns": 41_000_000,
        "service_ns": 37_000_000,
        "held_ns": 30_000_000,
        "cpu_ns": 5_000_000,
        "server_load": 1.8,
        "server_threads": 16,
    },
)
def waiting_for_remote_calls(
    wait_share: float,
    callee: str,
    function: str,
    round_trip_ns: int | None = None,
    service_ns: int | None = None,
    held_ns: int = 0,
    cpu_ns: int | None = None,
    server_load: float | None = None,
    server_threads: int | None = None,
) -> Sentence:
    """Trainers wait for the answers of servers for a notable part of their steps.

    held_ns: of the service, until other calls had come. server_load: how many calls are served at a time.
    """
    text = f"waiting for them takes {wait_share:.0%} of the step. Most is {function} on {callee}"
    if round_trip_ns is None or service_ns is None:
        return text, f"record {callee} too, to see how much of that is its work"
    text += f". {service_ns / max(round_trip_ns, 1):.0%} of a round trip is service there"
    action = f"send less to {callee}, in fewer calls, or ahead of need"
    if held_ns >= _HELD * service_ns:
        text += ", mostly until other calls have come"
        action = f"let {callee} answer before all calls have come, or send them at the same time"
    elif service_ns >= _SERVICE * round_trip_ns:
        action = f"make {function} faster, or spread it over more processes than {callee}"
        if cpu_ns is not None and cpu_ns < _ON_CPU * service_ns:
            text += f", {cpu_ns / max(service_ns, 1):.0%} of that on a CPU"
            action = (
                f"make {function} faster: see what it waits for on {callee}, such as a lock, another process or a "
                "device"
            )
    elif server_threads and server_load is not None and server_load >= _FULL * server_threads:
        text += f". Its {server_threads} threads are busy"
        action = f"give {callee} more threads (num_worker_threads), or serve from more processes"
    return text, action
