"""What is kept of one rank's remote calls, and how long its steps wait for them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from tracekit.analysis.step_time.tables import NamedWait
from tracekit.analysis.timeline.recorded_steps import RecordedSteps
from tracekit.model.intervals import Intervals
from tracekit.model.metadata import RpcCall, RpcUse
from tracekit.model.summary import Part, StepParts

__all__ = [
    "REMOTE_CALLS",
    "WHAT",
    "blocked_time",
    "complete_time",
    "in_flight_time",
    "remote_calls_of",
    "time_of",
    "waits_of",
]

WHAT = "remote calls"


def _merged(windows: Sequence[RpcUse | None]) -> RpcUse | None:
    """Return all windows of one worker as one."""
    uses = [window for window in windows if window is not None]
    if not uses:
        return None
    return msgspec.structs.replace(
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
