"""Why a rank's host is late: what it did in each step, beyond what the hosts of its peers did.

A rank keeps for how long it was idle for which cause, how long exposed copies took, and how long its host allocated
memory and collected garbage, whether or not its device had work meanwhile. Operators that take longer, and the
locations of a host that launches late, are compared by their sums over all steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from tracekit.explain.kernels.by_name import OPERATOR_TIMES
from tracekit.explain.pauses.tables import PAUSE_TIMES
from tracekit.explain.step_time.tables import IDLE_SUMS, HostLocation
from tracekit.model.columnar import Columnar
from tracekit.model.events import Float64, Int32, Int64
from tracekit.model.run import Run
from tracekit.model.summary import RankSummary, table_part
from tracekit.rank.idle_causes import (
    IDLE_CAUSES,
    allocations,
    garbage_collections,
    host_threads,
    idle_by_cause,
    synchronising_calls,
)
from tracekit.rank.recorded_steps import RecordedSteps
from tracekit.stats.grouped import summed

HOST_ACTIVITIES = ("copy", *IDLE_CAUSES)
"""What a rank does that neither computes nor communicates: exposed copies, and idle time for a cause."""

_SYNCHRONISATION = HOST_ACTIVITIES.index("synchronisation")
BY_TURNS = ("copy", "data", "logging", "allocator", "garbage_collection", "host_compute")
"""Causes that may hit another rank in each step, of which the others wait for whichever it hits."""

_STALLS = ("data", "graph_capture", "allocator", "garbage_collection")  # they explain why a step is longer than others
_NAMED = ("checkpoint", *BY_TURNS)  # the activity says what the host does; of others its location
_MOST = 0.5  # of what a host does longer: a cause with less does not explain it
_SLOW_OPERATORS = 1.25  # times as long as on peers
_MANY_CALLS = 10  # a step: of fewer a single one may take all the time
_SAME_COUNT = 0.05  # of the calls
_MORE_CALLS = 1.1  # times as many that wait for the device


@dataclass(frozen=True, kw_only=True, eq=False)
class HostTimes(Columnar):
    """n times that a rank spent on one of `HOST_ACTIVITIES` in one step.

    Attributes:
        step: int64 [n].
        activity: index into `HOST_ACTIVITIES`, int32 [n].
        idle_ns: while it was idle or copied, int64 [n].
        time_ns: of its host; where that is not known `idle_ns`, int64 [n].
        calls: of the host that waited for the device, int64 [n]; 0 for all but synchronisation.
    """

    step: Int64
    activity: Int32
    idle_ns: Int64
    time_ns: Int64
    calls: Int64

    def matrix(self, column: str, steps: Sequence[int]) -> Int64:
        """Return the times of a column by step and activity, int64 [steps, activities]. steps: ascending."""
        result = np.zeros((len(steps), len(HOST_ACTIVITIES)), dtype=np.int64)
        chosen = self.rows(np.isin(self.step, steps))
        np.add.at(result, (np.searchsorted(steps, chosen.step), chosen.activity), getattr(chosen, column))
        return result


HOST_TIMES = table_part("host_times", HostTimes)


def paused_by_step_ns(run: Run) -> dict[int, int]:
    """Return how long each step is paused, or idle for one of `_STALLS`, on the rank for which it is longest."""
    longest_ns: dict[int, int] = {}
    for summary in run.ranks:
        times = summary[HOST_TIMES]
        stalls = times.rows(np.isin(times.activity, [HOST_ACTIVITIES.index(cause) for cause in _STALLS]))
        stalled_ns = summed(zip(stalls.step.tolist(), stalls.idle_ns.tolist(), strict=True))
        for step, time_ns in (summary[PAUSE_TIMES].by_step_ns() + stalled_ns).items():
            longest_ns[step] = max(longest_ns.get(step, 0), time_ns)
    return longest_ns


def host_times(recorded: RecordedSteps) -> HostTimes:
    """Return what a rank spent its steps on beside computing and communicating."""
    events, lanes = recorded.trace.events, recorded.lanes
    begin_ns, end_ns = lanes.windows.start_ns, lanes.windows.end_ns
    times = {"copy": lanes.exposed_copy, **recorded.once(idle_by_cause)}
    idle_ns = np.stack([times[name].covered_ns(begin_ns, end_ns) for name in HOST_ACTIVITIES])
    times |= {"allocator": allocations(events, recorded.once(host_threads))}
    times |= {"garbage_collection": garbage_collections(events)}
    time_ns = np.stack([times[name].covered_ns(begin_ns, end_ns) for name in HOST_ACTIVITIES])
    calls = np.zeros_like(idle_ns)
    if lanes.device == "gpu":
        of_calls = lanes.windows.index_of(recorded.once(synchronising_calls).begin_ns)
        calls[_SYNCHRONISATION] = np.bincount(of_calls[of_calls >= 0], minlength=len(begin_ns))
    activity, window = np.nonzero(np.maximum(np.maximum(idle_ns, time_ns), calls))
    return HostTimes(
        step=lanes.windows.step[window],
        activity=activity.astype(np.int32),
        idle_ns=idle_ns[activity, window],
        time_ns=time_ns[activity, window],
        calls=calls[activity, window],
    )


def cause_of_late_hosts(
    run: Run, slow: Sequence[int], others: Sequence[int], steps: Sequence[int]
) -> tuple[str, dict[str, object]]:
    """Return what the hosts of slow ranks do longer than others in these steps, and what shows it.

    It is one of `HOST_ACTIVITIES`, operators, or host: anything else. Operators are shown as `slow_operators`: how many
    `times` as long they take, and that of which most comes, with its time and that on peers. Of what else a host does
    this is shown: `waits_for_device`, that it does so more often; or `host_in`, the location at which it is for longer.

    slow, others: indexes of ranks.
    """
    of_slow, of_others = (_mean(run, indexes, "idle_ns", steps) for indexes in (slow, others))
    beyond_ns = dict(zip(HOST_ACTIVITIES, np.maximum(of_slow - of_others, 0.0).tolist(), strict=True))
    calls, usual = (_mean(run, indexes, "calls", steps)[_SYNCHRONISATION] for indexes in (slow, others))
    if calls <= _MORE_CALLS * usual:  # of what all do alike only the late host is idle behind
        beyond_ns["host_bound"] += beyond_ns.pop("synchronisation")
    main = max(beyond_ns, key=lambda name: beyond_ns[name])
    is_most = 0 < beyond_ns[main] >= _MOST * sum(beyond_ns.values())
    if is_most and main in _NAMED:
        return main, {}
    if is_most and main == "synchronisation":
        return "host", {"waits_for_device": {"calls": float(calls), "peers_calls": float(usual)}}
    if main != "host_bound" or beyond_ns[main] <= 0:
        return "host", {}
    slow_ranks, other_ranks = ([run.ranks[index] for index in indexes] for indexes in (slow, others))
    operators = _slow_operators(slow_ranks, other_ranks, _MOST * beyond_ns[main]) if run.device == "gpu" else None
    if operators is not None:
        return "operators", {"slow_operators": operators}
    location = _location(slow_ranks, other_ranks, _MOST * beyond_ns[main])
    return "host", {"host_in": location} if location is not None else {}


def _mean(run: Run, indexes: Sequence[int], column: str, steps: Sequence[int]) -> Float64:
    """Return a column of some ranks by activity, their medians, the mean of the steps."""
    each = [run.ranks[index][HOST_TIMES].matrix(column, steps) for index in indexes]
    return np.asarray(np.median(each, axis=0).mean(axis=0))


def time_by_turns_ns(run: Run, steps: Sequence[int]) -> dict[str, int]:
    """Return by how much the rank with the most exceeds the others, the mean of the steps, of each cause by turns."""
    measured = [summary[HOST_TIMES].matrix("time_ns", steps) for summary in run.ranks if summary.is_measured]
    times_ns = np.sort(np.stack(measured), axis=0)
    beyond_ns = (times_ns[-1] - np.median(times_ns[:-1], axis=0)).mean(axis=0)
    return {name: int(beyond_ns[HOST_ACTIVITIES.index(name)]) for name in BY_TURNS}


def _slow_operators(
    slow: Sequence[RankSummary], others: Sequence[RankSummary], least_ns: float
) -> dict[str, object] | None:
    """Return the operators that hosts call as often as others, if these being slower explains `least_ns` a step."""
    here, there = _operators(slow), _operators(others)
    longer = {
        name: (count, self_ns, there[name][1], exposed_ns - there[name][2])
        for name, (count, self_ns, exposed_ns) in here.items()
        if name in there and abs(count - there[name][0]) <= _SAME_COUNT * count
        if self_ns >= _SLOW_OPERATORS * there[name][1] > 0 and exposed_ns > there[name][2]
    }
    if not longer or sum(row[0] for row in longer.values()) < _MANY_CALLS:
        return None
    if sum(row[3] for row in longer.values()) < least_ns:
        return None
    name = max(longer, key=lambda name: longer[name][3])
    count, self_ns, peers_ns, _ = longer[name]
    times = sum(row[1] for row in longer.values()) / sum(row[2] for row in longer.values())
    return {"times": times, "operator": name, "each_ns": self_ns / count, "peers_ns": peers_ns / count}


def _operators(ranks: Sequence[RankSummary]) -> dict[str, list[float]]:
    """Return calls, self time and exposed self time in ns a step by operator, medians of the ranks that have it."""
    rows: dict[str, list[Float64]] = {}
    for times in (summary[OPERATOR_TIMES] for summary in ranks):
        sums = times.sums
        columns = np.stack((sums.count, sums.self_ns, sums.exposed_ns), axis=1) / max(times.steps, 1)
        for name, values in zip(sums.name.tolist(), columns, strict=True):
            rows.setdefault(name, []).append(values)
    return {name: np.median(values, axis=0).tolist() for name, values in rows.items()}


def _location(slow: Sequence[RankSummary], others: Sequence[RankSummary], least_ns: float) -> dict[str, object] | None:
    """Return where the hosts of slow ranks are for longer, if that explains `least_ns` a step."""
    here, there = _locations(slow), _locations(others)
    beyond_ns = {place: time_ns - there.get(place, 0.0) for place, time_ns in here.items()}
    place = max(beyond_ns, key=lambda place: beyond_ns[place], default=None)
    if place is None or beyond_ns[place] < least_ns or not (place.operator or place.annotation or place.source):
        return None
    return {**asdict(place), "total_ns": round(beyond_ns[place])}


def _locations(ranks: Sequence[RankSummary]) -> dict[HostLocation, float]:
    """Return for how long hosts that launch late are where, in ns a step, the mean of the ranks."""
    result: dict[HostLocation, float] = {}
    for summary in ranks:
        steps = max(sum(step.complete for step in summary.steps), 1) * len(ranks)
        for location in (at for idle in summary[IDLE_SUMS] if idle.cause == "host_bound" for at in idle.locations):
            place = replace(location, total_ns=0)
            result[place] = result.get(place, 0.0) + location.total_ns / steps
    return result
