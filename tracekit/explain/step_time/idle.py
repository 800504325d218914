"""Why ranks idle, what their hosts do then, and what to do about it.

Each rank keeps how long it idles for each cause. For causes that are the host's it also keeps where its host was: in
which operator, annotation and source line.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tracekit.explain.configuration import CONFIGURATION
from tracekit.explain.step_time.tables import (
    IDLE_LOCATIONS,
    IDLE_SUMS,
    MOST_LOCATIONS,
    NAMED_WAITS,
    HostLocation,
    IdleSum,
)
from tracekit.findings.finding import Finding
from tracekit.findings.hosts import BEFORE_OPERATORS, IDLE_ENTRIES, idle_unexplained, location_text
from tracekit.findings.thresholds import IDLE_SHARE, NOTABLE_SHARE, UNKNOWN_SHARE
from tracekit.model.events import ABSENT, Int64
from tracekit.model.intervals import EMPTY, Intervals
from tracekit.model.names.modules import is_of_program
from tracekit.model.run import Run
from tracekit.model.spans import LABEL_PREFIX
from tracekit.model.table import Rows
from tracekit.rank.idle_causes import idle_behind_calls, idle_by_cause
from tracekit.rank.lanes import complete_steps
from tracekit.rank.missing_kernels import graph_extents
from tracekit.rank.phases import AUTOGRAD_NODE_PREFIX, innermost_span, outermost
from tracekit.rank.recorded_steps import RecordedSteps
from tracekit.rank.steps import StepWindows
from tracekit.stats.grouped import summed

_MAIN_LOCATION = 0.1  # of the idle time of a cause: a smaller location says little
_SECOND_CAUSE = 0.3  # of the idle time: a cause with less is not named beside the main one
# Causes that other sections report on, as the text names them.
_REPORTED_APART = {"data": "loading", "checkpoint": "checkpoints", "logging": "logging"}

# The host is in these causes by what it does, and the cause itself does not tell all of it.
_LOCATION_IS_TELLING = frozenset(
    {"host_bound", "synchronisation", "graph_capture", "allocator", "host_compute", "between_steps", "checkpoint"}
)
_CLOSED_BY_HOST = _LOCATION_IS_TELLING - {"checkpoint"} | {"garbage_collection"}

_MOST_INTERVALS = 1000  # of a cause: the longest, of which the locations are found

Location = tuple[str | None, str | None, str | None]
"""The operator, the annotation where there is no operator, and the source. None: nothing is recorded."""

# Spans around operators, which say nothing of what the host does in particular.
_AROUND = (LABEL_PREFIX, "FSDP::", "FullyShardedDataParallel.", "DistributedDataParallel.", "PP:")
_OPTIMIZER = "Optimizer."
_REPLAY = "a replay of a CUDA graph"  # whose kernels are not recorded
_STEP = "ProfilerStep#"


def idle_rows(run: Run) -> Rows:
    """Return rows of tables.IDLE."""
    return [
        {"rank": summary.rank, "cause": idle.cause, "total_ns": idle.total_ns}
        for summary in run.ranks
        for idle in summary[IDLE_SUMS]
    ]


def idle_location_rows(run: Run) -> Rows:
    """Return rows of tables.IDLE_LOCATIONS, for each cause the locations with the most time first."""
    rows = []
    for cause in dict.fromkeys(idle.cause for summary in run.ranks for idle in summary[IDLE_SUMS]):
        for location, by_rank in _locations(run, cause)[:MOST_LOCATIONS]:
            worst = max(by_rank, key=lambda rank: by_rank[rank])
            worst_ns = {"worst_rank": worst, "worst_ns": by_rank[worst]}
            rows.append(IDLE_LOCATIONS.row(location, cause=cause, ranks=len(by_rank), **worst_ns))
    return rows


def _locations(run: Run, cause: str) -> list[tuple[HostLocation, dict[int, int]]]:
    """Return what the hosts of all ranks were in, the locations with the most time first, and their time by rank."""
    times_ns: dict[tuple[str | None, str | None, str | None], dict[int, int]] = defaultdict(dict)
    for summary in run.ranks:
        for idle in summary[IDLE_SUMS]:
            for location in idle.locations if idle.cause == cause else ():
                times_ns[location.operator, location.annotation, location.source][summary.rank] = location.total_ns
    locations = [
        (HostLocation(operator=operator, annotation=annotation, source=source, total_ns=sum(by_rank.values())), by_rank)
        for (operator, annotation, source), by_rank in times_ns.items()
    ]
    return sorted(locations, key=lambda location: -location[0].total_ns)


def idle_findings(run: Run, step_ns: float | None = None, path_ns: Mapping[str, int] | None = None) -> list[Finding]:
    """Find time in which the ranks neither compute, communicate nor copy, with its main cause.

    Loading data, pauses and named waits have separate findings. Time in which something ran that is not recorded is no
    idle time.

    step_ns, path_ns: the step, and by cause how long the chain that bounds it is idle, without what named ranks cause.
        None: the mean step, and the mean idle time, of all ranks.
    """
    steps = [step for summary in run.ranks for step in summary.steps if step.complete]
    if not steps:
        return []

    def means(totals_ns: Iterable[tuple[str, int]]) -> Counter[str]:
        return Counter({name: total_ns // len(steps) for name, total_ns in summed(totals_ns).items()})

    means_ns = means((i.cause, i.total_ns) for summary in run.ranks for i in summary[IDLE_SUMS])
    waits_ns = means((wait.what, wait.total_ns) for summary in run.ranks for wait in summary[NAMED_WAITS])
    if step_ns is None:
        step_ns = sum(step.step_ns for step in steps) / len(steps)
    causes_ns = Counter(means_ns if path_ns is None else path_ns)
    apart_ns = {cause: causes_ns.pop(cause, 0) for cause in _REPORTED_APART}
    named_share = min(waits_ns.total() / means_ns["other"], 1.0) if means_ns["other"] else 0.0
    unknown_ns = round(causes_ns.pop("other", 0) * (1 - named_share))
    unexplained = [_unexplained(run, unknown_ns, step_ns)] if unknown_ns and step_ns > 0 else []
    idle_ns = causes_ns.total()
    if step_ns <= 0 or idle_ns <= 0:
        return unexplained
    main, *others = [_Cause.of(run, name, time_ns / idle_ns) for name, time_ns in causes_ns.most_common(2)]
    second = next((each for each in others if each.share >= _SECOND_CAUSE), None)
    location = main.longest
    aside = [_REPORTED_APART[cause] for cause, time_ns in apart_ns.items() if time_ns >= NOTABLE_SHARE * step_ns]
    aside += [
        f"waits for {waited_for}" for waited_for, wait_ns in waits_ns.items() if wait_ns >= NOTABLE_SHARE * step_ns
    ]
    evidence: dict[str, object] = {
        "device": run.device,
        "share": idle_ns / step_ns,
        "data_idle_ns": round(apart_ns["data"]),
        "idle_causes_ns": {name: round(time_ns) for name, time_ns in causes_ns.most_common() if time_ns},
        "host_in": None if location is None else location_text(location.operator, location.annotation, location.source),
        "aside": aside,
        "main": main.numbers(),
        "second": None if second is None else second.numbers(),
        "compiled": _is_compiled(run),
    }
    if run.device != "gpu":
        evidence["no_replay"] = "a replay of CPU ranks keeps what Python does"
    elif main.name not in _CLOSED_BY_HOST:
        evidence["no_replay"] = "no change of the host would close these gaps"
    elif unknown_ns >= UNKNOWN_SHARE * step_ns:
        evidence["no_replay"] = "a replay needs what ran in the time of which nothing is recorded"
    threshold = IDLE_SHARE if "no_replay" in evidence else NOTABLE_SHARE
    return [
        IDLE_ENTRIES[main.name](
            cause=main.name,
            time_ns=round(idle_ns),
            evidence=evidence,
            remedy="host" if "no_replay" not in evidence else None,
            conditions=[threshold.reached_by(idle_ns / step_ns)],
        ),
        *unexplained,
    ]


def _unexplained(run: Run, unknown_ns: int, step_ns: float) -> Finding:
    """Return what is said of time in which nothing runs that is recorded. It is no idle time, and nothing saves it."""
    of_graphs_ns = sum(location.total_ns for location, _ in _locations(run, "other"))
    steps = sum(step.complete for summary in run.ranks for step in summary.steps)
    return idle_unexplained(
        severity="info",
        evidence={
            "device": run.device,
            "unknown_share": unknown_ns / step_ns,
            "unknown_ns": unknown_ns,
            "in_graphs": 2 * of_graphs_ns > unknown_ns * steps,
        },
        conditions=[UNKNOWN_SHARE.reached_by(unknown_ns / step_ns)],
    )


@dataclass(frozen=True, kw_only=True)
class _Cause:
    """A cause of idle time: its share of it, and where the hosts of the ranks were, longest first."""

    name: str
    share: float
    locations: Sequence[HostLocation]

    @classmethod
    def of(cls, run: Run, name: str, share: float) -> _Cause:
        return cls(name=name, share=share, locations=[location for location, _ in _locations(run, name)])

    @property
    def longest(self) -> HostLocation | None:
        return self.locations[0] if self.locations else None

    def numbers(self) -> dict[str, object]:
        """Return what the sentence says of it."""
        location, total_ns = self.longest, sum(location.total_ns for location in self.locations)
        location_share = location.total_ns / total_ns if location is not None else 0.0
        return {
            "cause": self.name,
            "share": self.share,
            "location": None
            if location is None
            else location_text(location.operator, location.annotation, location.source, short=True),
            "location_share": location_share * self.share if location_share >= _MAIN_LOCATION else None,
            "in_python": sum(location.total_ns for location in self.locations if location.operator is None)
            > total_ns / 2,
        }


def _is_compiled(run: Run) -> bool:
    return any(setting.component == "compile" for summary in run.ranks for setting in summary[CONFIGURATION])


def idle_sums(recorded: RecordedSteps) -> tuple[IdleSum, ...]:
    """Return a sum for each cause that has idle time in the complete steps; they sum to the steps' idle time."""
    complete = complete_steps(recorded.lanes, recorded.steps).time
    causes = recorded.once(idle_by_cause)
    in_steps = {cause: time & complete for cause, time in causes.items() if len(time)}
    locations = _locations_of_gaps(recorded, in_steps)
    replays = Intervals.union_of(*graph_extents(recorded.trace.events, recorded.lanes.device_events))
    if still_ns := (replays & in_steps.get("other", EMPTY)).len_ns:
        locations["other"].append(HostLocation(operator=_REPLAY, annotation=None, source=None, total_ns=still_ns))
    return tuple(
        IdleSum(cause=cause, total_ns=time.len_ns, locations=tuple(locations[cause][:MOST_LOCATIONS]))
        for cause, time in in_steps.items()
        if len(time)
    )


def _locations_of_gaps(recorded: RecordedSteps, in_steps: Mapping[str, Intervals]) -> dict[str, list[HostLocation]]:
    """Return what the host was in during the idle time of each cause, the most first."""
    result: dict[str, list[HostLocation]] = {cause: [] for cause in in_steps}
    least_ns = NOTABLE_SHARE * sum(step.step_ns for step in recorded.steps if step.complete)
    of_host = [cause for cause in in_steps if cause in _LOCATION_IS_TELLING and in_steps[cause].len_ns > least_ns]
    if not of_host:
        return result
    locations = HostLocations(recorded)
    what, time_ns, total_ns, before = [], [], [], locations.before_operators(recorded.lanes.windows)
    for number, cause in enumerate(of_host):
        if cause == "synchronisation":
            idle = recorded.once(idle_behind_calls)
            time_ns.append(recorded.trace.events.start_ns[idle.call])
            total_ns.append(in_steps[cause].covered_ns(idle.start_ns, idle.end_ns))
        else:
            start_ns, end_ns = locations.split(_longest(in_steps[cause]), before)
            time_ns.append(start_ns)
            total_ns.append(end_ns - start_ns)
        what.append(2 * number + before.covers(time_ns[-1]))  # odd: before the first operator of a step
    found = locations.sums(np.concatenate(what), np.concatenate(time_ns), np.concatenate(total_ns))
    for number, place, location_ns in found:
        operator, annotation, source = place
        if number % 2 and operator is None and annotation is None:
            annotation = BEFORE_OPERATORS
        location = HostLocation(operator=operator, annotation=annotation, source=source, total_ns=location_ns)
        result[of_host[number // 2]].append(location)
    return result


def _longest(time: Intervals) -> Intervals:
    """Return the longest intervals of some time. The many short ones of a busy device say little of its host."""
    if len(time) <= _MOST_INTERVALS:
        return time
    longest = np.sort(np.argpartition(-time.duration_ns, _MOST_INTERVALS)[:_MOST_INTERVALS])
    return Intervals(time.start_ns[longest], time.end_ns[longest])


class HostLocations:
    """Where the host of a rank is: on its step's thread, or on one on which autograd runs.

    An operator is the outermost one, or the action of an optimizer that is around it. Labels of wrappers are none.
    A source is a function of the program in the recorded Python stacks: the innermost one that is neither torch's nor
    Python's.
    """

    def __init__(self, recorded: RecordedSteps) -> None:
        self._events = events = recorded.trace.events
        self._step_thread = step_thread = recorded.lanes.windows.thread
        others = recorded.lanes.threads[recorded.lanes.threads != step_thread]
        threads = [*others.tolist(), *([step_thread] if step_thread >= 0 else [])]
        around = events.named(lambda name: name.startswith(_AROUND))
        operators = events.in_category("cpu_op") & ~around
        optimizer = events.named(lambda name: name.startswith(_OPTIMIZER)) & ~events.in_category("gpu_user_annotation")
        locations = operators | optimizer
        self._operators = [
            outermost(events, np.flatnonzero(locations & events.on_tracks(np.array([thread])))) for thread in threads
        ]
        around |= events.in_category("user_annotation")
        around &= ~events.named(lambda name: name.startswith(_STEP))
        self._annotations = self._on_step_thread(np.flatnonzero(around), "user_annotation", "cpu_op")
        self._frames = self._on_step_thread(np.flatnonzero(events.named(is_of_program)), "python_function")

    def _on_step_thread(self, rows: Int64, *categories: str) -> Int64:
        """Return those of the events that are of these categories, and on the thread of the step."""
        events = self._events
        rows = rows[events.track[rows] == self._step_thread]
        return rows[events.in_category(*categories)[rows]]

    def at(self, time_ns: Int64) -> tuple[Int64, Int64, Int64]:
        """Return the rows of the operator, the innermost annotation and the source at each time, int64 [n] each.

        ABSENT: none is recorded.
        """
        operator = np.full(len(time_ns), ABSENT, dtype=np.int64)
        for rows in self._operators:
            if len(rows):
                index = np.searchsorted(self._events.start_ns[rows], time_ns, side="right") - 1
                inside = (index >= 0) & (time_ns < self._events.end_ns[rows[index]]) & (operator == ABSENT)
                operator[inside] = rows[index[inside]]
        thread = np.full(len(time_ns), self._step_thread, dtype=np.int64)
        annotation, source = (
            innermost_span(self._events, rows, thread, time_ns) for rows in (self._annotations, self._frames)
        )
        return operator, annotation, source

    def before_operators(self, windows: StepWindows) -> Intervals:
        """Return when the step's thread had begun a step, and no operator in it."""
        if windows.thread == ABSENT or windows.source == "recording":
            return EMPTY
        starts_ns = np.append(self._events.start_ns[self._operators[-1]], windows.host_end_ns)
        begin_ns = windows.host_start_ns
        first_ns = starts_ns[np.searchsorted(starts_ns[:-1], begin_ns)]
        return Intervals.union_of(begin_ns, np.minimum(first_ns, np.append(begin_ns[1:], windows.host_end_ns)))

    def split(self, time: Intervals, edges: Intervals = EMPTY) -> tuple[Int64, Int64]:
        """Cut `time` into intervals, in each of which the host is in one location; return their starts and ends.

        edges: whose starts and ends cut it as well.
        """
        events, edges_ns = self._events, [time.start_ns, time.end_ns]
        edges_ns += [column[time.covers(column)] for column in (edges.start_ns, edges.end_ns)]
        for rows in self._operators:  # they do not overlap
            inside = time & Intervals(events.start_ns[rows], events.end_ns[rows])
            edges_ns += [inside.start_ns, inside.end_ns]
        for rows in (self._annotations, self._frames):
            for column in (events.start_ns[rows], events.end_ns[rows]):
                edges_ns.append(column[time.covers(column)])
        cuts_ns = np.sort(np.concatenate(edges_ns), kind="stable")
        is_inside = time.covers(cuts_ns[:-1]) & (cuts_ns[1:] > cuts_ns[:-1])
        return cuts_ns[:-1][is_inside], cuts_ns[1:][is_inside]

    def sums(self, what: Int64, time_ns: Int64, total_ns: Int64) -> list[tuple[int, Location, int]]:
        """Return the time by cause and location, the most first: cause, location, ns.

        what: the cause of idle time at each moment, as an index, int64 [n].
        time_ns: moments at which the host was in a location, int64 [n].
        total_ns: what each of them counts for, int64 [n].
        """
        if not len(time_ns):
            return []
        events = self._events
        operator, annotation, source = self.at(time_ns)
        annotation[operator != ABSENT] = ABSENT
        # One number for all four is sorted much faster than rows of four.
        keys, texts_of = np.zeros(len(time_ns), dtype=np.int64), []
        for rows in (operator, annotation, source):
            names = np.where(rows == ABSENT, ABSENT, events.name[rows]) + 1
            found = np.flatnonzero(np.bincount(names))
            number = np.zeros(len(events.strings) + 1, dtype=np.int64)
            number[found] = np.arange(len(found))
            texts_of.append([None if name == ABSENT else events.strings[name] for name in (found - 1).tolist()])
            keys = keys * len(found) + number[names]
        keys += what * math.prod(map(len, texts_of))
        order = np.argsort(keys, kind="stable")
        keys, total_ns = keys[order], total_ns[order]
        first = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
        keys, sums_ns = keys[first], np.add.reduceat(total_ns, first)
        result = []
        for i in np.argsort(-sums_ns, kind="stable").tolist():
            key, names_of_key = int(keys[i]), []
            for texts in reversed(texts_of):
                key, index = divmod(key, len(texts))
                names_of_key.append(texts[index])
            frame, label, name = names_of_key
            location = (None if name is None else name.removeprefix(AUTOGRAD_NODE_PREFIX), label, frame)
            if sums_ns[i]:
                result.append((key, location, int(sums_ns[i])))
        return result
