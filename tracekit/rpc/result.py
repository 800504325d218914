"""What the section on remote calls returns, and when a rank's thread was blocked in a wait for them.

A run without RPC needs the result, but not what computes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracekit.analysis.finding import Finding
from tracekit.analysis.table import Frame
from tracekit.model.intervals import Intervals
from tracekit.model.metadata import RpcCall, RpcUse
from tracekit.model.summary import StepParts
from tracekit.rpc import columns

__all__ = ["RemoteCalls", "blocked_time", "complete_time", "in_flight_time", "time_of"]


@dataclass(frozen=True, kw_only=True)
class RemoteCalls:
    """Remote calls of all ranks; empty without RPC.

    Attributes:
        calls: rows of columns.RPC, the calls that a rank issued in its complete steps.
        by_function: rows of columns.RPC_BY_FUNCTION, the most waited for first.
        unjoined: rows of columns.RPC_UNJOINED.
        trainers: rows of columns.RPC_TRAINERS.
        servers: rows of columns.RPC_SERVERS, the busiest first.
        service: rows of columns.RPC_SERVICE.
        updates: rows of columns.RPC_UPDATES, in order of rank and issue.
    """

    calls: Frame = Frame(columns.RPC)
    by_function: Frame = Frame(columns.RPC_BY_FUNCTION)
    unjoined: Frame = Frame(columns.RPC_UNJOINED)
    trainers: Frame = Frame(columns.RPC_TRAINERS)
    servers: Frame = Frame(columns.RPC_SERVERS)
    service: Frame = Frame(columns.RPC_SERVICE)
    updates: Frame = Frame(columns.RPC_UPDATES)
    findings: tuple[Finding, ...]

    @classmethod
    def empty(cls) -> RemoteCalls:
        """Return the result of a run without RPC."""
        return cls(calls=[], by_function=[], unjoined=[], trainers=[], servers=[], service=[], updates=[], findings=())


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
