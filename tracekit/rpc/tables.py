"""Tables of remote calls, and the result that has them."""

from __future__ import annotations

from dataclasses import dataclass

from tracekit.analysis.table import RANK, Column, Display, Frame, Table
from tracekit.findings.finding import Finding

__all__ = ["RPC", "RPC_BY_FUNCTION", "RPC_SERVERS", "RPC_SERVICE", "RPC_TRAINERS", "RPC_UNJOINED", "RemoteCalls"]

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
