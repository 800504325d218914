"""The chain of computing and communication over all ranks that bounds the steps.

A step is walked backwards from its end, on the rank that ends it last, to that rank's last release from communication.
The walk goes on with the rank that came last to that communication, or with the sender, until the step's beginning.
What a rank did before a send is known by its length only, and counts as compute.

    rank 0   |-- compute --|- wait -|==transfer==|- compute -|    the chain: rank 1's compute, the transfer, and the
    rank 1   |------ compute -------|==transfer==|- compute |     compute of rank 0 after it
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from tracekit.analysis.stragglers import columns
from tracekit.analysis.stragglers.arrivals import Arrivals
from tracekit.analysis.table import Frame
from tracekit.analysis.timeline.parts import STEP_ENDS
from tracekit.model.communication import KINDS
from tracekit.model.events import ABSENT, Int64
from tracekit.model.run import Finding, Run, clocks_are_comparable

__all__ = ["CriticalPath", "Stretch", "critical_path"]

_END = "end of step"
Key = tuple[int, str, str]  # rank, kind, name


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """A part of the chain on one rank.

    Attributes:
        rank: the rank; of a transfer the one that came last.
        name: the communication that it leads to, or is.
        start_ns: on the run's clock.
        end_ns: on the run's clock.
        parts_ns: its time by kind.
    """

    rank: int
    name: str
    start_ns: int
    end_ns: int
    parts_ns: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class CriticalPath:
    """The chains that bound the steps.

    Attributes:
        parts: rows of columns.CRITICAL_PATH, the longest first.
        steps: how many steps were walked.
        stretches: what the chains consist of, in order of time; they may overlap by the errors of clocks.
        findings: none yet.
    """

    parts: Frame = Frame(columns.CRITICAL_PATH)
    steps: int
    stretches: tuple[Stretch, ...] = ()
    findings: tuple[Finding, ...] = ()


def critical_path(run: Run, arrivals: Arrivals) -> CriticalPath:
    """Return the chains of all steps that all ranks completed; none if the clocks of its hosts were not measured."""
    steps = sorted(run.common_steps()) if clocks_are_comparable(run.ranks, run.clocks) else []
    stretches: list[Stretch] = []
    if steps:
        walk = _BackwardWalk(run, arrivals)
        for step in steps:
            stretches += reversed(list(walk.back_from_end(step)))
    total_ns: Counter[Key] = Counter()
    for stretch in stretches:
        for kind, length_ns in stretch.parts_ns.items():
            total_ns[stretch.rank, kind, stretch.name] += length_ns
    whole_ns = sum(total_ns.values())
    rows: list[dict[str, object]] = [
        {"rank": rank, "kind": kind, "name": name, "total_ns": length_ns, "share": length_ns / whole_ns}
        for (rank, kind, name), length_ns in sorted(total_ns.items(), key=lambda item: (-item[1], item[0]))
        if length_ns > 0
    ]
    return CriticalPath(parts=rows, steps=len(steps), stretches=tuple(stretches))


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
class _Segment:
    """What a rank did between two communications.

    Attributes:
        place: place of the rank in the run's ranks.
        since_ns: its beginning, on the rank's clock.
        until_ns: its end, on the rank's clock.
        released_by: index of the instance that it begins with, or -1.
        leads_to: name of what it ends with.
        compute_ns: how long the rank computed in it; None where only its length is known.
        data_ns: how long the rank loaded data in it.
    """

    place: int
    since_ns: int
    until_ns: int
    released_by: int
    leads_to: str
    compute_ns: int | None = None
    data_ns: int = 0


class _BackwardWalk:
    """Walks back from the ends of a run's steps; remembers the releases of the ranks that it came to."""

    def __init__(self, run: Run, arrivals: Arrivals) -> None:
        self.run = run
        self.arrivals = arrivals
        self.instances = arrivals.instances
        self._releases: dict[int, _Releases] = {}
        trained = [(place, summary) for place, summary in enumerate(run.ranks) if not summary.serves_only]
        self._steps = {place: {part.step: part for part in summary.steps} for place, summary in trained}

    def back_from_end(self, number: int) -> Iterator[Stretch]:
        """Yield the chain that bounds a step, backwards from its end."""
        parts = {place: steps[number] for place, steps in self._steps.items() if number in steps}
        ends_ns = {place: part.start_ns + part.step_ns for place, part in parts.items()}
        place = max(parts, key=lambda i: (self._run_ns(i, ends_ns[i]), parts[i].compute_ns, -i))
        end_ns = ends_ns[place]
        segment: _Segment | None = self._step_end_segment(place, end_ns) or self._segment_since_release(
            place, end_ns, _END
        )
        while segment is not None and segment.place in parts:
            begin_ns = parts[segment.place].start_ns
            if segment.until_ns > max(segment.since_ns, begin_ns):
                yield self._stretch(segment, begin_ns)
            if segment.since_ns <= begin_ns:
                return
            segment, transfer = self._step_back(segment, begin_ns)
            if transfer is not None:
                yield transfer

    def _stretch(self, segment: _Segment, begin_ns: int) -> Stretch:
        """Return the part of a segment that lies behind `begin_ns`, where the step begins."""
        since_ns = max(segment.since_ns, begin_ns)
        return Stretch(
            rank=self.run.ranks[segment.place].rank,
            name=segment.leads_to,
            start_ns=self._run_ns(segment.place, since_ns),
            end_ns=self._run_ns(segment.place, segment.until_ns),
            parts_ns=self._parts_ns(segment, begin_ns, segment.until_ns - since_ns),
        )

    def _parts_ns(self, segment: _Segment, begin_ns: int, length_ns: int) -> Mapping[str, int]:
        if segment.compute_ns is None:
            return {"compute": length_ns}
        whole_ns = segment.until_ns - segment.since_ns
        compute_ns, data_ns = segment.compute_ns, min(segment.data_ns, whole_ns)
        if length_ns < whole_ns:
            tail = self._step_end_segment(segment.place, begin_ns)
            if tail is not None and tail.since_ns == segment.since_ns:
                compute_ns, data_ns = compute_ns - (tail.compute_ns or 0), data_ns - tail.data_ns
            else:  # not known: take it as spread evenly
                compute_ns, data_ns = compute_ns * length_ns // whole_ns, data_ns * length_ns // whole_ns
        data_ns = min(data_ns, length_ns)
        compute_ns = min(compute_ns, length_ns - data_ns)
        return {"data": data_ns, "compute": compute_ns, "host": length_ns - data_ns - compute_ns}

    def _step_back(self, segment: _Segment, begin_ns: int) -> tuple[_Segment | None, Stretch | None]:
        """Return the segment of the rank that came last to what released this one, and the transfer between them.

        begin_ns: where the step begins on the rank that was released; the transfer counts from there.
        """
        which = segment.released_by
        if which == ABSENT:
            return None, None
        released_ns = self._run_ns(segment.place, segment.since_ns)
        name = self._name(which)
        place = int(self.instances.rank[which])
        if place == ABSENT:  # several came last: the released one is taken, which may well be one of them
            place = segment.place
            before = self._segment_before_release(place, segment.since_ns, which)
        else:
            before = self._segment_before_arrival(which)
        if before is None:
            return None, None
        arrived_ns = self._run_ns(place, before.until_ns)
        if arrived_ns >= self._run_ns(segment.place, segment.until_ns):
            return None, None
        begun_ns = max(arrived_ns, self._run_ns(segment.place, begin_ns))
        if released_ns <= begun_ns:
            return before, None
        rank, parts_ns = self.run.ranks[place].rank, {"communication": released_ns - begun_ns}
        return before, Stretch(rank=rank, name=name, start_ns=begun_ns, end_ns=released_ns, parts_ns=parts_ns)

    def _segment_before_arrival(self, which: int) -> _Segment | None:
        """Return the segment of the last rank before it arrived at an instance."""
        instances, place, row = self.instances, int(self.instances.rank[which]), int(self.instances.row[which])
        if which < self.arrivals.collectives:
            return self._segment_of_collective(place, row, int(instances.released_by[which]))
        until_ns = int(self.run.ranks[place].messages.ready_ns[row])
        since_ns = int(instances.released_ns[which])
        if since_ns == ABSENT:
            return self._segment_since_release(place, until_ns, self._name(which))
        return _Segment(
            place=place,
            since_ns=since_ns,
            until_ns=until_ns,
            released_by=int(instances.released_by[which]),
            leads_to=self._name(which),
        )

    def _segment_of_collective(self, place: int, row: int, released_by: int) -> _Segment:
        """Return the segment of a rank before one of its collectives."""
        collectives = self.run.ranks[place].collectives
        return _Segment(
            place=place,
            since_ns=int(collectives.released_ns[row]),
            until_ns=int(collectives.start_ns[row]),
            released_by=released_by,
            leads_to=self._name(int(self.arrivals.instance_of[place][row])),
            compute_ns=max(int(collectives.compute_ns[row]), 0),
            data_ns=max(int(collectives.data_ns[row]), 0),
        )

    def _segment_before_release(self, place: int, released_ns: int, which: int) -> _Segment | None:
        """Return the segment of a rank before it arrived at the instance that released it."""
        releases = self._releases_of(place)
        found = np.flatnonzero((releases.ends_ns == released_ns) & (releases.instance == which) & (releases.row >= 0))
        if not len(found):
            return None
        row = int(releases.row[found[0]])
        since_ns = int(self.run.ranks[place].collectives.released_ns[row])
        at = int(np.searchsorted(releases.ends_ns, since_ns, side="left"))
        known = at < len(releases.ends_ns) and int(releases.ends_ns[at]) == since_ns
        return self._segment_of_collective(place, row, int(releases.instance[at]) if known else ABSENT)

    def _step_end_segment(self, place: int, until_ns: int) -> _Segment | None:
        """Return what a rank did before a step's end, if it was recorded."""
        tails, releases = self.run.ranks[place][STEP_ENDS], self._releases_of(place)
        at = int(np.searchsorted(tails.until_ns, until_ns))
        if at == len(tails) or int(tails.until_ns[at]) != until_ns:
            return None
        since_ns = int(tails.released_ns[at])
        released = int(np.searchsorted(releases.ends_ns, since_ns))
        known = released < len(releases.ends_ns) and int(releases.ends_ns[released]) == since_ns
        return _Segment(
            place=place,
            since_ns=since_ns,
            until_ns=until_ns,
            released_by=int(releases.instance[released]) if known else ABSENT,
            leads_to=_END,
            compute_ns=int(tails.compute_ns[at]),
            data_ns=int(tails.data_ns[at]),
        )

    def _segment_since_release(self, place: int, until_ns: int, leads_to: str) -> _Segment:
        """Return the segment of a rank from its last release on, of which only the length is known."""
        releases = self._releases_of(place)
        at = int(np.searchsorted(releases.ends_ns, until_ns, side="right")) - 1
        since_ns, which = (int(releases.ends_ns[at]), int(releases.instance[at])) if at >= 0 else (0, ABSENT)
        return _Segment(place=place, since_ns=since_ns, until_ns=until_ns, released_by=which, leads_to=leads_to)

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

    def _name(self, which: int) -> str:
        if which == ABSENT:
            return "unknown"
        kind, group = KINDS[self.instances.kind[which]], int(self.instances.group[which])
        if group == ABSENT:
            return kind
        label = self.run.groups[group].label
        return f"{kind} ({label})" if label else kind

    def _run_ns(self, place: int, time_ns: int) -> int:
        return self.run.clocks[place].moment_to_run(time_ns)
