"""The chain of work and communication over all ranks that bounds the steps, and what each rank did on it.

A step of the job begins when the last rank begins it, and ends when the last rank ends it, on the run's clock.
`BackwardWalk` walks back from that end, on the rank that ends the step last, to that rank's last release from
communication. The walk goes on with the rank that came last to that communication, or with the sender, until the step's
beginning.

* From communication that was queued behind other communication, the walk goes on with that.
* Where the released rank was itself busy after the others had come, only the rest of the transfer held it up. The walk
  goes on with that rank.

    rank 0   |-- compute --|- wait -|==transfer==|- compute -|    the chain: rank 1's compute, the transfer, and the
    rank 1   |------ compute -------|==transfer==|- compute |     compute of rank 0 after it

The chain is clamped where clocks disagree, so that every instant of the step belongs to exactly one interval.
`RankActivities` tells what a rank did in any interval of its time in which it did not wait in communication.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tracekit.explain.diagnosis import tables
from tracekit.explain.diagnosis.tables import ACTIVITIES, PHASE_ACTIVITIES, PhaseActivities
from tracekit.explain.step_time.step_lengths import mean_step_ns
from tracekit.explain.stragglers.arrivals import Arrivals
from tracekit.findings.finding import Finding
from tracekit.model.communication import KINDS
from tracekit.model.events import ABSENT, Int64
from tracekit.model.run import Run, clocks_are_comparable, largest_pair_error_ns
from tracekit.model.table import Frame
from tracekit.rank.phases import STEP_PHASES
from tracekit.rank.recorded_steps import STEP_ENDS, WAITS
from tracekit.stats.apportion import apportion
from tracekit.stats.grouped import summed

_TRANSFER_ACTIVITY = "communication"
_MOST_ERROR = 0.05  # of the step, by which clocks may be off: what is shorter than that is no finding anyway


_OTHER = ACTIVITIES.index("other")
_NO_PHASE = STEP_PHASES.index("other")
_AT_ONCE = 10_000  # intervals, which bounds the memory
Times = dict[tuple[str, str], int]  # of each activity and phase, in ns

_END = "end of step"


@dataclass(frozen=True, kw_only=True)
class PathInterval:
    """A part of the chain on one rank.

    Attributes:
        step: number of the step.
        rank: the rank; of a transfer the one that came last; of a queued one, that was ready last.
        name: the communication that it leads to, or is.
        instance: index of that communication's instance in `Arrivals.instances`, or -1.
        start_ns: on the run's clock.
        end_ns: on the run's clock.
        times_ns: its time by activity, of a transfer `_TRANSFER_ACTIVITY`, and phase; the sum is its length.
    """

    step: int
    rank: int
    name: str
    instance: int
    start_ns: int
    end_ns: int
    times_ns: Mapping[tuple[str, str], int]

    @property
    def is_transfer(self) -> bool:
        return any(activity == _TRANSFER_ACTIVITY for activity, _ in self.times_ns)

    @property
    def parts_ns(self) -> dict[str, int]:
        """Return its time by activity."""
        return dict(summed((activity, time_ns) for (activity, _), time_ns in self.times_ns.items()))


@dataclass(frozen=True, kw_only=True)
class CriticalPath:
    """The chains that bound the steps.

    Attributes:
        parts: rows of tables.CRITICAL_PATH, the longest first.
        steps: how many steps were walked.
        intervals: what the chains consist of, in order of time; those of a step are the whole step.
        findings: none; the diagnosis reads the chain.
    """

    parts: Frame = Frame(tables.CRITICAL_PATH)
    steps: int
    intervals: tuple[PathInterval, ...] = ()
    findings: tuple[Finding, ...] = ()


def critical_path(run: Run, arrivals: Arrivals) -> CriticalPath:
    """Return the chains of all steps that all ranks completed.

    There are none if the clocks of its hosts were not measured, or may be off by a notable part of a step, or if ranks
    do not communicate, so that no chain leads from one to another.
    """
    steps = sorted(run.common_steps()) if _order_of_ranks_is_known(run) else []
    intervals: list[PathInterval] = []
    if steps:
        walk = BackwardWalk(run, arrivals)
        intervals = _path_intervals(walk, [part for step in steps for part in reversed(list(_chain(walk, step)))])
    total_ns = summed(
        ((interval.rank, kind, interval.name), length_ns)
        for interval in intervals
        for kind, length_ns in interval.parts_ns.items()
    )
    whole_ns = sum(total_ns.values())
    rows: list[dict[str, object]] = [
        {"rank": rank, "kind": kind, "name": name, "total_ns": length_ns, "share": length_ns / whole_ns}
        for (rank, kind, name), length_ns in sorted(total_ns.items(), key=lambda item: (-item[1], item[0]))
        if length_ns > 0
    ]
    return CriticalPath(parts=rows, steps=len(steps), intervals=tuple(intervals))


def _order_of_ranks_is_known(run: Run) -> bool:
    """Return whether it is known which of two ranks was first, where that matters to the length of a step."""
    if run.ranks_are_independent or not clocks_are_comparable(run.ranks, run.clocks):
        return False
    return largest_pair_error_ns(run.clocks) <= _MOST_ERROR * mean_step_ns(run)


def _chain(walk: BackwardWalk, step: int) -> Iterator[_Part]:
    """Yield the parts of one step's chain, backwards from its end, without gaps or overlap."""
    begin_ns, until_ns = walk.job_step(step)
    last: Segment | None = None
    for part in walk.back_from_end(step, begin_ns):
        if until_ns <= begin_ns:
            return
        start_ns = max(min(part.start_ns, until_ns), begin_ns)
        if isinstance(part, Segment):
            last = part
        if start_ns < until_ns:
            yield step, part, start_ns, until_ns
            until_ns = start_ns
    if last is not None and until_ns > begin_ns:  # what the rank did before its first communication
        yield step, last, begin_ns, until_ns


def _path_intervals(walk: BackwardWalk, parts: Sequence[_Part]) -> list[PathInterval]:
    """Return the parts of a chain, divided by activity and phase."""
    times_ns = _times_ns(walk.run, parts)
    intervals = []
    for (step, part, start_ns, end_ns), part_times_ns in zip(parts, times_ns, strict=True):
        if isinstance(part, Transfer):
            name, instance = walk.name(part.instance), part.instance
        else:
            name, instance = part.leads_to, part.leads_to_instance
        intervals.append(
            PathInterval(
                step=step,
                rank=walk.run.ranks[part.rank_index].rank,
                name=name,
                instance=instance,
                start_ns=start_ns,
                end_ns=end_ns,
                times_ns=part_times_ns,
            )
        )
    return intervals


def _times_ns(run: Run, parts: Sequence[_Part]) -> list[Times]:
    """Return the time of each part by activity and phase."""
    result: list[Times] = [{} for _ in parts]
    for rank_index in sorted({part.rank_index for _, part, _, _ in parts}):
        activities = RankActivities(run.ranks[rank_index][PHASE_ACTIVITIES])
        rows, begins_ns, lengths_ns, known_ns = [], [], [], []
        for row, (_, part, start_ns, end_ns) in enumerate(parts):
            if part.rank_index != rank_index:
                continue
            begin_ns, length_ns = part.begin_ns + start_ns - part.start_ns, end_ns - start_ns
            if isinstance(part, Transfer):
                result[row] = {(_TRANSFER_ACTIVITY, activities.phase_at(begin_ns)): length_ns}
                continue
            is_whole = begin_ns == part.begin_ns and length_ns == part.until_ns - part.begin_ns
            rows.append(row)
            begins_ns.append(begin_ns)
            lengths_ns.append(length_ns)
            known_ns.append((part.known_ns if is_whole else None) or {})
        begin, length = np.array(begins_ns, dtype=np.int64), np.array(lengths_ns, dtype=np.int64)
        for row, times_ns in zip(rows, activities.divide(begin, begin + length, known_ns), strict=True):
            result[row] = times_ns
    return result


class RankActivities:
    """The activities of one rank by interval of a phase.

    Within an interval of a phase, activities are taken as spread evenly: their sums over whole phases are exact.
    """

    def __init__(self, table: PhaseActivities) -> None:
        self._begin_ns, first, interval = np.unique(table.begin_ns, return_index=True, return_inverse=True)
        self._end_ns, self._phase = table.end_ns[first], table.phase[first]
        time_ns = np.zeros((len(first), len(ACTIVITIES)))
        np.add.at(time_ns, (interval, table.activity), table.time_ns)
        self._share = time_ns / np.maximum(time_ns.sum(axis=1, keepdims=True), 1.0)

    def divide(self, begin_ns: Int64, end_ns: Int64, known_ns: Sequence[Mapping[str, int]]) -> list[Times]:
        """Return the time of each of s intervals by activity and phase.

        begin_ns, end_ns: of the intervals, on the rank's wall clock, int64 [s].
        known_ns: ns of each interval by activity, where they were measured. The remaining time is divided among the
        other activities as is usual in its phases. With an empty mapping all time is. Outside of recorded phases it is
        compute.
        """
        parts = (slice(at, at + _AT_ONCE) for at in range(0, len(known_ns), _AT_ONCE))
        return [times for part in parts for times in self._divide(begin_ns[part], end_ns[part], known_ns[part])]

    def _divide(self, begin_ns: Int64, end_ns: Int64, known_ns: Sequence[Mapping[str, int]]) -> list[Times]:
        first = np.searchsorted(self._end_ns, begin_ns, side="right")
        count = np.maximum(np.searchsorted(self._begin_ns, end_ns, side="left") - first, 0)
        which = np.repeat(np.arange(len(first)), count)
        row = np.arange(len(which)) + np.repeat(first - np.cumsum(count) + count, count)
        phase = self._phase[row]
        overlap_ns = np.minimum(self._end_ns[row], end_ns[which]) - np.maximum(self._begin_ns[row], begin_ns[which])
        weights = self._share[row] * overlap_ns[:, None]
        usual = np.zeros((len(first), len(ACTIVITIES)))
        np.add.at(usual, which, weights)
        by_phase = np.zeros((len(first), len(STEP_PHASES), len(ACTIVITIES)))
        np.add.at(by_phase, (which, phase), weights)
        # Of an activity that is unusual in these phases, each phase has as much as the interval has of the phase.
        of_interval = np.zeros((len(first), len(STEP_PHASES)))
        np.add.at(of_interval, (which, phase), overlap_ns)
        of_interval[count == 0, _NO_PHASE] = 1.0
        by_phase = np.where(by_phase.any(axis=1, keepdims=True), by_phase, of_interval[..., None])
        times_ns = apportion(_by_activity(end_ns - begin_ns, usual, known_ns), by_phase.swapaxes(1, 2).copy())
        result: list[Times] = [{} for _ in known_ns]
        found = np.nonzero(times_ns)
        columns = (rows.tolist() for rows in (*found, times_ns[found]))
        for interval, activity, number, time_ns in zip(*columns, strict=True):
            result[interval][ACTIVITIES[activity], STEP_PHASES[number]] = time_ns
        return result

    def phase_at(self, time_ns: int) -> str:
        """Return the phase at a time on the rank's wall clock; "other" outside of the recorded steps."""
        at = int(np.searchsorted(self._begin_ns, time_ns, side="right")) - 1
        return STEP_PHASES[self._phase[at] if at >= 0 and time_ns < self._end_ns[at] else _NO_PHASE]


def _by_activity(total_ns: Int64, usual: NDArray[np.float64], known_ns: Sequence[Mapping[str, int]]) -> Int64:
    """Return how long each of `ACTIVITIES` took of each time: as known, and the rest in the usual proportion."""
    times_ns = np.zeros(usual.shape, dtype=np.int64)
    for interval, known in enumerate(known_ns):
        for name, time_ns in known.items():
            activity = ACTIVITIES.index(name)
            times_ns[interval, activity], usual[interval, activity] = time_ns, 0.0
        if known and not usual[interval].any():
            usual[interval, _OTHER] = 1.0
    return times_ns + apportion(total_ns - times_ns.sum(axis=1), usual)


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
        rank_index: index of the rank in the run's ranks.
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

    rank_index: int
    start_ns: int
    begin_ns: int
    until_ns: int
    released_by: int
    leads_to: str
    leads_to_instance: int = ABSENT
    known_ns: Mapping[str, int] | None = None
    ready_ns: int | None = None


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """A transfer between two segments.

    Attributes:
        rank_index: index in the run's ranks of the rank that came last; of a queued one, that was ready last.
        instance: index of the instance.
        start_ns: its beginning, on the run's clock.
        begin_ns: its beginning, on the rank's clock.
    """

    rank_index: int
    instance: int
    start_ns: int
    begin_ns: int


_Part = tuple[int, Segment | Transfer, int, int]
"""Number of a step, and what is on its chain from when to when, on the run's clock."""


class BackwardWalk:
    """Walks back from the ends of a run's steps; remembers the releases of the ranks that it came to."""

    def __init__(self, run: Run, arrivals: Arrivals) -> None:
        self.run = run
        self.arrivals = arrivals
        self.instances = arrivals.instances
        self._releases: dict[int, _Releases] = {}
        trained = [(rank_index, summary) for rank_index, summary in enumerate(run.ranks) if summary.is_measured]
        self._steps = {rank_index: {part.step: part for part in summary.steps} for rank_index, summary in trained}

    def job_step(self, number: int) -> tuple[int, int]:
        """Return when the last rank begins and ends a step, on the run's clock."""
        parts = [(rank_index, steps[number]) for rank_index, steps in self._steps.items() if number in steps]
        begin_ns = max(self._run_ns(rank_index, part.start_ns) for rank_index, part in parts)
        return begin_ns, max(self._run_ns(rank_index, part.start_ns + part.step_ns) for rank_index, part in parts)

    def back_from_end(self, number: int, begin_ns: int) -> Iterator[Segment | Transfer]:
        """Yield the chain that bounds a step, backwards from its end, to `begin_ns` on the run's clock or beyond.

        Each begins where the one before it in the chain ends, but for the errors of clocks.
        """
        parts = {rank_index: steps[number] for rank_index, steps in self._steps.items() if number in steps}
        ends_ns = {rank_index: part.start_ns + part.step_ns for rank_index, part in parts.items()}
        rank_index = max(parts, key=lambda i: (self._run_ns(i, ends_ns[i]), parts[i].compute_ns, -i))
        end_ns = ends_ns[rank_index]
        segment: Segment | None = self._step_end_segment(rank_index, end_ns) or self._segment_since_release(
            rank_index, end_ns
        )
        while segment is not None and segment.rank_index in parts:
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

    def _step_back(self, segment: Segment) -> tuple[Segment | None, Transfer | None]:
        """Return the segment of the rank that came last to what released this one, and the transfer between them."""
        which = segment.released_by
        if which == ABSENT:
            return None, None
        rank_index = int(self.instances.rank[which])
        if rank_index == ABSENT:  # several came last: the released one is taken, which may well be one of them
            rank_index = segment.rank_index
            before = self._segment_before_release(rank_index, segment.begin_ns, which)
        else:
            before = self._segment_before_beginning(which)
        if before is None:
            return None, None
        arrived_ns = self._run_ns(before.rank_index, before.until_ns)
        waits_since_ns = segment.ready_ns
        if waits_since_ns is None:
            waits_since_ns = self._waits_since_ns(segment.rank_index, segment.begin_ns)
        if waits_since_ns is not None and arrived_ns < self._run_ns(segment.rank_index, waits_since_ns):
            before = self._segment_since_release(segment.rank_index, waits_since_ns, which)
            arrived_ns = self._run_ns(before.rank_index, waits_since_ns)
        if arrived_ns >= self._run_ns(segment.rank_index, segment.until_ns):
            return None, None
        return before, Transfer(
            rank_index=before.rank_index, instance=which, start_ns=arrived_ns, begin_ns=before.until_ns
        )

    def _segment_before_beginning(self, which: int) -> Segment | None:
        """Return the segment of the last rank before it arrived at an instance; one of no length if that was queued."""
        instances, rank_index, row = self.instances, int(self.instances.rank[which]), int(self.instances.row[which])
        released_ns = int(instances.released_ns[which])
        if instances.queued[which]:
            return self._segment_before_queued(which, *self._last_ready(which, rank_index, row))
        if which < self.arrivals.collectives:
            return self._segment_of_collective(rank_index, row, int(instances.released_by[which]))
        until_ns = int(self.run.ranks[rank_index].messages.arrival_ns[row])
        if released_ns == ABSENT:
            return self._segment_since_release(rank_index, until_ns, which)
        return self._segment(rank_index, released_ns, until_ns, int(instances.released_by[which]), which)

    def _last_ready(self, which: int, rank_index: int, row: int) -> tuple[int, int]:
        """Return the rank that was ready last for a queued collective, and its row there; what is given if that rank
        did not queue, or is not known.
        """
        last = int(self.instances.last_arrival[which])
        if last in {ABSENT, rank_index}:
            return rank_index, row
        row_of_last = int(np.flatnonzero(self.arrivals.instance_of[last] == which)[0])
        queued = int(self.run.ranks[last].collectives.queued_ns[row_of_last]) != ABSENT
        return (last, row_of_last) if queued else (rank_index, row)

    def _segment_before_queued(self, which: int, rank_index: int, row: int) -> Segment:
        """Return a segment of no length on a rank where a collective queued, at the end of what it queued behind."""
        collectives = self.run.ranks[rank_index].collectives
        begun_ns = int(collectives.queued_ns[row])
        segment = self._segment(rank_index, begun_ns, begun_ns, self._released_by(rank_index, begun_ns), which)
        return replace(segment, ready_ns=int(collectives.ready_ns[row]))

    def _segment_of_collective(self, rank_index: int, row: int, released_by: int) -> Segment:
        """Return the segment of a rank before one of its collectives."""
        collectives = self.run.ranks[rank_index].collectives
        begin_ns, until_ns = int(collectives.released_ns[row]), int(collectives.ready_ns[row])
        known_ns = _known(until_ns - begin_ns, int(collectives.compute_ns[row]), int(collectives.data_ns[row]))
        instance = int(self.arrivals.instance_of[rank_index][row])
        return self._segment(rank_index, begin_ns, until_ns, released_by, instance, known_ns)

    def _segment_before_release(self, rank_index: int, released_ns: int, which: int) -> Segment | None:
        """Return the segment of a rank before it arrived at the instance that released it."""
        releases = self._releases_of(rank_index)
        found = np.flatnonzero((releases.ends_ns == released_ns) & (releases.instance == which) & (releases.row >= 0))
        if not len(found):
            return None
        row = int(releases.row[found[0]])
        return self._segment_of_collective(
            rank_index, row, self._released_by(rank_index, int(self.run.ranks[rank_index].collectives.released_ns[row]))
        )

    def _step_end_segment(self, rank_index: int, until_ns: int) -> Segment | None:
        """Return what a rank did before a step's end, if it was recorded."""
        tails = self.run.ranks[rank_index][STEP_ENDS]
        at = int(np.searchsorted(tails.until_ns, until_ns))
        if at == len(tails) or int(tails.until_ns[at]) != until_ns:
            return None
        begin_ns = int(tails.released_ns[at])
        known_ns = _known(until_ns - begin_ns, int(tails.compute_ns[at]), int(tails.data_ns[at]))
        return self._segment(rank_index, begin_ns, until_ns, self._released_by(rank_index, begin_ns), ABSENT, known_ns)

    def _segment_since_release(self, rank_index: int, until_ns: int, which: int = ABSENT) -> Segment:
        """Return the segment of a rank from its last release on, of which only the length is known.

        A release ends a wait. Where waits were not kept, the end of any communication counts.
        """
        waits, releases = self.run.ranks[rank_index][WAITS], self._releases_of(rank_index)
        ends_ns = waits.until_ns if len(waits) else releases.ends_ns
        at = int(np.searchsorted(ends_ns, until_ns, side="right")) - 1
        begin_ns = int(ends_ns[at]) if at >= 0 else 0
        return self._segment(rank_index, begin_ns, until_ns, self._released_by(rank_index, begin_ns), which)

    def _waits_since_ns(self, rank_index: int, until_ns: int) -> int | None:
        """Return since when a rank has waited for what ended at a time, on its clock; None if that is not known."""
        waits = self.run.ranks[rank_index][WAITS]
        at = int(np.searchsorted(waits.until_ns, until_ns))
        return int(waits.since_ns[at]) if at < len(waits) and int(waits.until_ns[at]) == until_ns else None

    def _segment(
        self,
        rank_index: int,
        begin_ns: int,
        until_ns: int,
        released_by: int,
        which: int,
        known_ns: Mapping[str, int] | None = None,
    ) -> Segment:
        """Return a segment that leads to an instance, or to the step's end where that is -1."""
        return Segment(
            rank_index=rank_index,
            start_ns=self._run_ns(rank_index, begin_ns),
            begin_ns=begin_ns,
            until_ns=until_ns,
            released_by=released_by,
            leads_to=_END if which == ABSENT else self.name(which),
            leads_to_instance=which,
            known_ns=known_ns,
        )

    def _released_by(self, rank_index: int, at_ns: int) -> int:
        """Return the index of the instance that ended on a rank at a time, or -1."""
        releases = self._releases_of(rank_index)
        at = int(np.searchsorted(releases.ends_ns, at_ns, side="left"))
        known = at < len(releases.ends_ns) and int(releases.ends_ns[at]) == at_ns
        return int(releases.instance[at]) if known else ABSENT

    def _releases_of(self, rank_index: int) -> _Releases:
        if rank_index not in self._releases:
            summary, messages = self.run.ranks[rank_index], self.run.messages
            received = np.flatnonzero(messages.destination == summary.rank)
            ends_ns = np.concatenate((summary.collectives.end_ns, summary.messages.end_ns[messages.recv[received]]))
            instance = np.concatenate((self.arrivals.instance_of[rank_index], self.arrivals.collectives + received))
            row = np.concatenate((np.arange(len(summary.collectives)), np.full(len(received), ABSENT)))
            order = np.argsort(ends_ns, kind="stable")
            self._releases[rank_index] = _Releases(ends_ns=ends_ns[order], instance=instance[order], row=row[order])
        return self._releases[rank_index]

    def _run_ns(self, rank_index: int, time_ns: int) -> int:
        return self.run.clocks[rank_index].moment_to_run(time_ns)


def _known(length_ns: int, compute_ns: int, data_ns: int) -> dict[str, int]:
    """Return how long a rank computed and loaded data in a segment."""
    length_ns = max(length_ns, 0)
    data_ns = min(max(data_ns, 0), length_ns)
    return {"data": data_ns, "compute": min(max(compute_ns, 0), length_ns - data_ns)}
