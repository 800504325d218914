"""How long one rank idles for each cause, and in which operator, annotation and source line its host was then."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from tracekit.analysis.events.innermost_span import innermost_span, outermost_first
from tracekit.analysis.events.phase_evidence import AUTOGRAD_NODE_PREFIX
from tracekit.analysis.step_time.tables import MOST_PLACES, HostPlace, IdleSum
from tracekit.analysis.timeline.idle_causes import idle_behind_calls, idle_by_cause
from tracekit.analysis.timeline.lanes import complete_steps
from tracekit.analysis.timeline.recorded_steps import RecordedSteps
from tracekit.findings.thresholds import NOTABLE_SHARE
from tracekit.model.events import ABSENT, Bool, EventTable, Int64
from tracekit.model.intervals import Intervals
from tracekit.model.names.python_functions import is_of_program
from tracekit.model.spans import LABEL_PREFIX

__all__ = ["HostPlaces", "Place", "idle_sums"]

# The host is in these causes by what it does, and the cause itself does not tell all of it.
_PLACE_IS_TELLING = frozenset({"host_bound", "synchronisation", "allocator", "between_steps", "checkpoint"})

_MOST_STRETCHES = 1000  # of a cause: the longest, of which the places are found

Place = tuple[str | None, str | None, str | None]
"""The operator, the annotation where there is no operator, and the source. None: nothing is recorded."""

# Spans around operators, which say nothing of what the host does in particular.
_AROUND = (LABEL_PREFIX, "FSDP::", "FullyShardedDataParallel.", "DistributedDataParallel.", "PP:")
_OPTIMIZER = "Optimizer."
_STEP = "ProfilerStep#"


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
    least_ns = NOTABLE_SHARE * sum(step.step_ns for step in recorded.steps if step.complete)
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


class HostPlaces:
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
        operators = events.in_category("cpu_op", "Operator") & ~around
        optimizer = events.named(lambda name: name.startswith(_OPTIMIZER)) & ~events.in_category("gpu_user_annotation")
        places = operators | optimizer
        self._operators = [
            _outermost(events, np.flatnonzero(places & events.on_tracks(np.array([thread])))) for thread in threads
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
                place = np.searchsorted(self._events.start_ns[rows], time_ns, side="right") - 1
                inside = (place >= 0) & (time_ns < self._events.end_ns[rows[place]]) & (operator == ABSENT)
                operator[inside] = rows[place[inside]]
        thread = np.full(len(time_ns), self._step_thread, dtype=np.int64)
        annotation, source = (
            innermost_span(self._events, rows, thread, time_ns) for rows in (self._annotations, self._frames)
        )
        return operator, annotation, source

    def split(self, time: Intervals) -> tuple[Int64, Int64]:
        """Return stretches of `time` in each of which the place of the host is one, as starts and ends."""
        events, edges_ns = self._events, [time.start_ns, time.end_ns]
        for rows in self._operators:  # they do not overlap
            inside = time & Intervals(events.start_ns[rows], events.end_ns[rows])
            edges_ns += [inside.start_ns, inside.end_ns]
        for rows in (self._annotations, self._frames):
            for column in (events.start_ns[rows], events.end_ns[rows]):
                edges_ns.append(column[time.covers(column)])
        edges = np.sort(np.concatenate(edges_ns), kind="stable")
        is_inside = time.covers(edges[:-1]) & (edges[1:] > edges[:-1])
        return edges[:-1][is_inside], edges[1:][is_inside]

    def sums(self, what: Int64, time_ns: Int64, total_ns: Int64) -> list[tuple[int, Place, int]]:
        """Return the time by cause and place, the most first: cause, place, ns.

        what: the cause of idle time at each moment, as an index, int64 [n].
        time_ns: moments at which the host was in a place, int64 [n].
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
                key, place = divmod(key, len(texts))
                names_of_key.append(texts[place])
            frame, label, name = names_of_key
            place_names = (None if name is None else name.removeprefix(AUTOGRAD_NODE_PREFIX), label, frame)
            if sums_ns[i]:
                result.append((key, place_names, int(sums_ns[i])))
        return result


def _outermost(events: EventTable, rows: Int64) -> Int64:
    """Return those of the events that are in no other, in order of time."""
    rows = outermost_first(events, rows)
    if not len(rows):
        return rows
    reach_ns = np.maximum.accumulate(events.end_ns[rows])
    is_outermost: Bool = np.append(True, events.start_ns[rows][1:] >= reach_ns[:-1])
    return rows[is_outermost].astype(np.int64)
