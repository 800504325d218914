"""How long one rank idles for each cause, and what its host was in then."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tracekit.analysis.step_time.parts import MOST_PLACES, HostPlace, IdleSum
from tracekit.analysis.timeline.host_places import HostPlaces
from tracekit.analysis.timeline.idle_causes import idle_behind_calls, idle_by_cause
from tracekit.analysis.timeline.lanes import complete_steps
from tracekit.analysis.timeline.recorded_steps import RecordedSteps
from tracekit.model.intervals import Intervals

__all__ = ["idle_sums"]

# The host is in these causes by what it does, and the cause itself does not tell all of it.
_PLACE_IS_TELLING = frozenset({"host_bound", "synchronisation", "allocator", "between_steps", "checkpoint"})

_MOST_STRETCHES = 1000  # of a cause: the longest, of which the places are found
_NOTABLE = 0.05  # of the steps: of a cause that takes less, nobody wants to know the places


def idle_sums(recorded: RecordedSteps) -> tuple[IdleSum, ...]:
    """Return a sum for each cause that has idle time in the complete steps; they sum to the steps' idle time."""
    complete = complete_steps(recorded.lanes, recorded.steps).time
    causes = recorded.once(idle_by_cause)
    in_steps = {cause: time & complete for cause, time in causes.items() if len(time)}
    places = _places(recorded, in_steps)
    return tuple(
        IdleSum(cause=cause, total_ns=time.len_ns, places=tuple(places[cause][:MOST_PLACES]))
        for cause, time in in_steps.items()
        if len(time)
    )


def _places(recorded: RecordedSteps, in_steps: Mapping[str, Intervals]) -> dict[str, list[HostPlace]]:
    """Return what the host was in during the idle time of each cause, the most first."""
    result: dict[str, list[HostPlace]] = {cause: [] for cause in in_steps}
    least_ns = _NOTABLE * sum(step.step_ns for step in recorded.steps if step.complete)
    of_host = [cause for cause in in_steps if cause in _PLACE_IS_TELLING and in_steps[cause].len_ns > least_ns]
    if not of_host:
        return result
    places = HostPlaces(recorded)
    what, time_ns, total_ns = [], [], []
    for number, cause in enumerate(of_host):
        if cause == "synchronisation":
            idle = recorded.once(idle_behind_calls)
            time_ns.append(recorded.trace.events.start_ns[idle.call])
            total_ns.append(in_steps[cause].covered_ns(idle.start_ns, idle.end_ns))
        else:
            start_ns, end_ns = places.split(_longest(in_steps[cause]))
            time_ns.append(start_ns)
            total_ns.append(end_ns - start_ns)
        what.append(np.full(len(time_ns[-1]), number, dtype=np.int64))
    found = places.sums(np.concatenate(what), np.concatenate(time_ns), np.concatenate(total_ns))
    for number, (operator, annotation, source), place_ns in found:
        place = HostPlace(operator=operator, annotation=annotation, source=source, total_ns=place_ns)
        result[of_host[number]].append(place)
    return result


def _longest(time: Intervals) -> Intervals:
    """Return the longest stretches of some time. The many short ones of a busy device say little of its host."""
    if len(time) <= _MOST_STRETCHES:
        return time
    longest = np.sort(np.argpartition(-time.duration_ns, _MOST_STRETCHES)[:_MOST_STRETCHES])
    return Intervals(time.start_ns[longest], time.end_ns[longest])
