"""Whether events end so long after the recording that a time in it must be wrong.

The profiler ends when its own span does, and the device has no work left then. An event may seem to end a little later,
as clocks differ. If it ends later by more than the whole recording took, its duration is wrong, or the clock was set.
"""

from __future__ import annotations

from dataclasses import dataclass

from tracekit.analysis.timeline.host_steps import HostSteps
from tracekit.model.events import Bool, EventTable

_FEWEST_STEPS = 2  # that tell how long a recording is which has no span of the profiler

__all__ = ["Overrun", "overrun_of"]


@dataclass(frozen=True, kw_only=True)
class Overrun:
    """Events that end long after the recording.

    Attributes:
        by_ns: how long after it the last one ends.
        from_ns: the times up to here are not in doubt.
    """

    by_ns: int
    from_ns: int


def overrun_of(events: EventTable, host: HostSteps) -> Overrun | None:
    """Return the events that end long after the recording; None if there are none."""
    by_profiler = events.in_category("Trace") & (events.duration_ns > 0)
    if by_profiler.any():
        begin_ns, end_ns = int(events.start_ns[by_profiler].min()), int(events.end_ns[by_profiler].max())
        end_ns = max(end_ns, int(host.start_ns[-1]))  # where the clock was set before, the span tells too little
        is_late = events.end_ns > end_ns + (end_ns - begin_ns)
    else:
        begin_ns, end_ns = int(host.start_ns[0]), int(host.end_ns[-1])
        is_late = _after_a_pause(events, host, end_ns + (end_ns - begin_ns))
    if not is_late.any():
        return None
    # What begins late shows that the clock was set at any time since the last event before it.
    others_ns = int(events.start_ns[~is_late].max(initial=begin_ns))
    return Overrun(
        by_ns=int(events.end_ns[is_late].max()) - end_ns,
        from_ns=min(int(events.start_ns[is_late].min()), others_ns),
    )


def _after_a_pause(events: EventTable, host: HostSteps, until_ns: int) -> Bool:
    """Return a mask [n] of the operators that begin later than a time, if none begins between the steps and that time.

    A file without the profiler's span does not tell when it ended. It may go on behind the steps, and then has
    operators there.
    """
    operators = events.in_category("cpu_op", "Operator")
    late: Bool = operators & (events.start_ns > until_ns)
    between = operators & (events.start_ns > host.end_ns[-1]) & ~late
    if host.source == "recording" or len(host.step) < _FEWEST_STEPS or between.any():
        late[:] = False
    return late
