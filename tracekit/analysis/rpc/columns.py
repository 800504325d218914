"""Tables of remote calls."""

from tracekit.analysis.table import RANK, Column, Table

__all__ = ["RPC", "RPC_BY_FUNCTION", "RPC_UNJOINED"]

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
        Column("function", "str", "", "Function or method, or builtin operator."),
        Column("ranks", "int", "", "Ranks that call it; the means are over them and their complete steps."),
        Column("calls", "float", "", "Mean number a step."),
        Column("wait_ns", "float", "ns", "Mean time a step in which the training thread waits for one."),
        Column("round_trip_ns", "float?", "ns", "Mean of a joined call from issue to completion."),
        Column("service_ns", "float?", "ns", "Mean time of it in the function at the callee."),
        Column("transit_ns", "float?", "ns", "The rest of it: transit, queueing, packing."),
        Column("worst_rank", "int", "", "The rank with the longest wait."),
        Column("worst_wait_ns", "float", "ns", "Its wait a step."),
    ),
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
