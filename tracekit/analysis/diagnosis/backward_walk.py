"""Walks back from the end of a step, over all ranks, along what it waited for.

A step is walked backwards from its end, on the rank that ends it last, to that rank's last release from communication.
The walk goes on with the rank that came last to that communication, or with the sender, until the step's beginning.
From communication that was queued behind other communication, it goes on with that. Where the released rank was itself
busy after the others had come, only the rest of the transfer held it up: the walk goes on with that rank.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from tracekit.analysis.stragglers.arrivals.arrivals import Arrivals
from tracekit.analysis.timeline.parts import STEP_ENDS, WAITS
from tracekit.model.communication import KINDS
from tracekit.model.events import ABSENT, Int64
from tracekit.model.run import Run

__all__ = ["BackwardWalk", "Link", "Segment"]

_END = "end of step"


@dataclass(frozen=True, kw_only=True, eq=False)
class _Releases:
    """The e collectives and receives that released a rank, in the order of their ends.

    Attributes:
        ends_ns: int64 [e], on the rank's clock.
        instance: int64 [e], index of the instance, or -1.
        row: int64 [e], row of the rank's collectives, or -1 for a receive.
    """

    ends_ns: Int64
    instance: Int64
    row: Int64


@dataclass(frozen=True, kw_only=True)
class Segment:
    """What a rank did between two communications.

    Attributes:
        place: place of the rank in the run's ranks.
        start_ns: its beginning, on the run's clock.
        begin_ns: its beginning, on the rank's clock.
        until_ns: its end, on the rank's clock.
        released_by: index of the instance that it begins with, or -1.
        leads_to: name of what it ends with.
        leads_to_instance: index of the instance that it ends with, or -1.
        known_ns: how long the rank computed and loaded data in it; None where only its length is known.
        ready_ns: of a segment of no length before queued communication, when the rank was ready for that, on the rank's
            clock.
    """

    place: int
    start_ns: int
    begin_ns: int
    until_ns: int
    released_by: int
    leads_to: str
    leads_to_instance: int = ABSENT
    known_ns: Mapping[str, int] | None = None
    ready_ns: int | None = None


@dataclass(frozen=True, kw_only=True)
class Link:
    """A transfer between two segments.

    Attributes:
        place: place in the run's ranks of the rank that came last; of a queued one, that was ready last.
        instance: index of the instance.
        start_ns: its beginning, on the run's clock.
        begin_ns: its beginning, on the rank's clock.
    """

    place: int
    instance: int
    start_ns: int
    begin_ns: int


class BackwardWalk:
    """Walks back from the ends of a run's steps; remembers the releases of the ranks that it came to."""

    def __init__(self, run: Run, arrivals: Arrivals) -> None:
        self.run = run
        self.arrivals = arrivals
        self.instances = arrivals.instances
        self._releases: dict[int, _Releases] = {}
        trained = [(place, summary) for place, summary in enumerate(run.ranks) if summary.is_measured]
        self._steps = {place: {part.step: part for part in summary.steps} for place, summary in trained}

    def job_step(self, number: int) -> tuple[int, int]:
        """Return when the last rank begins and ends a step, on the run's clock."""
        parts = [(place, steps[number]) for place, steps in self._steps.items() if number in steps]
        begin_ns = max(self._run_ns(place, part.start_ns) for place, part in parts)
        return begin_ns, max(self._run_ns(place, part.start_ns + part.step_ns) for place, part in parts)

    def back_from_end(self, number: int, begin_ns: int) -> Iterator[Segment | Link]:
        """Yield the chain that bounds a step, backwards from its end, to `begin_ns` on the run's clock or beyond.

        Each begins where the one before it in the chain ends, but for the errors of clocks.
        """
        parts = {place: steps[number] for place, steps in self._steps.items() if number in steps}
        ends_ns = {place: part.start_ns + part.step_ns for place, part in parts.items()}
        place = max(parts, key=lambda i: (self._run_ns(i, ends_ns[i]), parts[i].compute_ns, -i))
        end_ns = ends_ns[place]
        segment: Segment | None = self._step_end_segment(place, end_ns) or self._segment_since_release(place, end_ns)
        while segment is not None and segment.place in parts:
            yield segment
            if segment.start_ns <= begin_ns:
                return
            segment, transfer = self._step_back(segment)
            if transfer is not None:
                yield transfer

    def name(self, which: int) -> str:
        """Return what to call an instance: its kind, and the label of its group."""
        if which == ABSENT:
            return "unknown"
        kind, group = KINDS[self.instances.kind[which]], int(self.instances.group[which])
        if group == ABSENT:
            return kind
        label = self.run.groups[group].label
        return f"{kind} ({label})" if label else kind

    def _step_back(self, segment: Segment) -> tuple[Segment | None, Link | None]:
        """Return the segment of the rank that came last to what released this one, and the transfer between them."""
        which = segment.released_by
        if which == ABSENT:
            return None, None
        place = int(self.instances.rank[which])
        if place == ABSENT:  # several came last: the released one is taken, which may well be one of them
            place = segment.place
            before = self._segment_before_release(place, segment.begin_ns, which)
        else:
            before = self._segment_before_beginning(which)
        if before is None:
            return None, None
        arrived_ns = self._run_ns(before.place, before.until_ns)
        waits_since_ns = segment.ready_ns
        if waits_since_ns is None:
            waits_since_ns = self._waits_since_ns(segment.place, segment.begin_ns)
        if waits_since_ns is not None and arrived_ns < self._run_ns(segment.place, waits_since_ns):
            before = self._segment_since_release(segment.place, waits_since_ns, which)
            arrived_ns = self._run_ns(before.place, waits_since_ns)
        if arrived_ns >= self._run_ns(segment.place, segment.until_ns):
            return None, None
        return before, Link(place=before.place, instance=which, start_ns=arrived_ns, begin_ns=before.until_ns)

    def _segment_before_beginning(self, which: int) -> Segment | None:
        """Return the segment of the last rank before it arrived at an instance; one of no length if that was queued."""
        instances, place, row = self.instances, int(self.instances.rank[which]), int(self.instances.row[which])
        released_ns = int(instances.released_ns[which])
        if instances.queued[which]:
            return self._segment_before_queued(which, *self._last_ready(which, place, row))
        if which < self.arrivals.collectives:
            return self._segment_of_collective(place, row, int(instances.released_by[which]))
        until_ns = int(self.run.ranks[place].messages.arrival_ns[row])
        if released_ns == ABSENT:
            return self._segment_since_release(place, until_ns, which)
        return self._segment(place, released_ns, until_ns, int(instances.released_by[which]), which)

    def _last_ready(self, which: int, place: int, row: int) -> tuple[int, int]:
        """Return the rank that was ready last for a queued collective, and its row there; what is given if that rank
        did not queue, or is not known.
        """
        last = int(self.instances.last_arrival[which])
        if last in {ABSENT, place}:
            return place, row
        row_of_last = int(np.flatnonzero(self.arrivals.instance_of[last] == which)[0])
        queued = int(self.run.ranks[last].collectives.queued_ns[row_of_last]) != ABSENT
        return (last, row_of_last) if queued else (place, row)

    def _segment_before_queued(self, which: int, place: int, row: int) -> Segment:
        """Return a segment of no length on a rank where a collective queued, at the end of what it queued behind."""
        collectives = self.run.ranks[place].collectives
        begun_ns = int(collectives.queued_ns[row])
        segment = self._segment(place, begun_ns, begun_ns, self._released_by(place, begun_ns), which)
        return replace(segment, ready_ns=int(collectives.ready_ns[row]))

    def _segment_of_collective(self, place: int, row: int, released_by: int) -> Segment:
        """Return the segment of a rank before one of its collectives."""
        collectives = self.run.ranks[place].collectives
        begin_ns, until_ns = int(collectives.released_ns[row]), int(collectives.ready_ns[row])
        known_ns = _known(until_ns - begin_ns, int(collectives.compute_ns[row]), int(collectives.data_ns[row]))
        instance = int(self.arrivals.instance_of[place][row])
        return self._segment(place, begin_ns, until_ns, released_by, instance, known_ns)

    def _segment_before_release(self, place: int, released_ns: int, which: int) -> Segment | None:
        """Return the segment of a rank before it arrived at the instance that released it."""
        releases = self._releases_of(place)
        found = np.flatnonzero((releases.ends_ns == released_ns) & (releases.instance == which) & (releases.row >= 0))
        if not len(found):
            return None
        row = int(releases.row[found[0]])
        return self._segment_of_collective(
            place, row, self._released_by(place, int(self.run.ranks[place].collectives.released_ns[row]))
        )

    def _step_end_segment(self, place: int, until_ns: int) -> Segment | None:
        """Return what a rank did before a step's end, if it was recorded."""
        tails = self.run.ranks[place][STEP_ENDS]
        at = int(np.searchsorted(tails.until_ns, until_ns))
        if at == len(tails) or int(tails.until_ns[at]) != until_ns:
            return None
        begin_ns = int(tails.released_ns[at])
        known_ns = _known(until_ns - begin_ns, int(tails.compute_ns[at]), int(tails.data_ns[at]))
        return self._segment(place, begin_ns, until_ns, self._released_by(place, begin_ns), ABSENT, known_ns)

    def _segment_since_release(self, place: int, until_ns: int, which: int = ABSENT) -> Segment:
        """Return the segment of a rank from its last release on, of which only the length is known.

        A release ends a wait. Where waits were not kept, the end of any communication counts.
        """
        waits, releases = self.run.ranks[place][WAITS], self._releases_of(place)
        ends_ns = waits.until_ns if len(waits) else releases.ends_ns
        at = int(np.searchsorted(ends_ns, until_ns, side="right")) - 1
        begin_ns = int(ends_ns[at]) if at >= 0 else 0
        return self._segment(place, begin_ns, until_ns, self._released_by(place, begin_ns), which)

    def _waits_since_ns(self, place: int, until_ns: int) -> int | None:
        """Return since when a rank has waited for what ended at a time, on its clock; None if that is not known."""
        waits = self.run.ranks[place][WAITS]
        at = int(np.searchsorted(waits.until_ns, until_ns))
        return int(waits.since_ns[at]) if at < len(waits) and int(waits.until_ns[at]) == until_ns else None

    def _segment(
        self,
        place: int,
        begin_ns: int,
        until_ns: int,
        released_by: int,
        which: int,
        known_ns: Mapping[str, int] | None = None,
    ) -> Segment:
        """Return a segment that leads to an instance, or to the step's end where that is -1."""
        return Segment(
            place=place,
            start_ns=self._run_ns(place, begin_ns),
            begin_ns=begin_ns,
            until_ns=until_ns,
            released_by=released_by,
            leads_to=_END if which == ABSENT else self.name(which),
            leads_to_instance=which,
            known_ns=known_ns,
        )

    def _released_by(self, place: int, at_ns: int) -> int:
        """Return the index of the instance that ended on a rank at a time, or -1."""
        releases = self._releases_of(place)
        at = int(np.searchsorted(releases.ends_ns, at_ns, side="left"))
        known = at < len(releases.ends_ns) and int(releases.ends_ns[at]) == at_ns
        return int(releases.instance[at]) if known else ABSENT

    def _releases_of(self, place: int) -> _Releases:
        if place not in self._releases:
            summary, messages = self.run.ranks[place], self.run.messages
            received = np.flatnonzero(messages.destination == summary.rank)
            ends_ns = np.concatenate((summary.collectives.end_ns, summary.messages.end_ns[messages.recv[received]]))
            instance = np.concatenate((self.arrivals.instance_of[place], self.arrivals.collectives + received))
            row = np.concatenate((np.arange(len(summary.collectives)), np.full(len(received), ABSENT)))
            order = np.argsort(ends_ns, kind="stable")
            self._releases[place] = _Releases(ends_ns=ends_ns[order], instance=instance[order], row=row[order])
        return self._releases[place]

    def _run_ns(self, place: int, time_ns: int) -> int:
        return self.run.clocks[place].moment_to_run(time_ns)


def _known(length_ns: int, compute_ns: int, data_ns: int) -> dict[str, int]:
    """Return how long a rank computed and loaded data in a segment."""
    length_ns = max(length_ns, 0)
    data_ns = min(max(data_ns, 0), length_ns)
    return {"data": data_ns, "compute": min(max(compute_ns, 0), length_ns - data_ns)}
