"""When a rank's thread was blocked in a wait for remote calls."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tracekit.model.intervals import Intervals
from tracekit.model.metadata import RpcCall, RpcUse
from tracekit.model.summary import StepParts

__all__ = ["blocked_time", "complete_time", "in_flight_time", "time_of"]


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
