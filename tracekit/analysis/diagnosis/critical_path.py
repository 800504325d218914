"""The chain of work and communication over all ranks that bounds the steps, and what each rank did on it.

A step of the job begins when the last rank begins it, and ends when the last rank ends it, on the run's clock.
`BackwardWalk` finds the chain of a step. It is clamped where clocks disagree, so that every instant of the step belongs
to exactly one stretch.

    rank 0   |-- compute --|- wait -|==transfer==|- compute -|    the chain: rank 1's compute, the transfer, and the
    rank 1   |------ compute -------|==transfer==|- compute |     compute of rank 0 after it

What a rank did is told for any stretch of its time in which it did not wait in communication.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tracekit.analysis.diagnosis import tables
from tracekit.analysis.diagnosis.backward_walk import BackwardWalk, Link, Segment
from tracekit.analysis.diagnosis.tables import ACTIVITIES, PHASE_ACTIVITIES, PhaseActivities
from tracekit.analysis.events.phases import STEP_PHASES
from tracekit.analysis.stats.apportion import apportion
from tracekit.analysis.step_time.step_lengths import mean_step_ns
from tracekit.analysis.stragglers.arrivals.arrivals import Arrivals
from tracekit.analysis.table import Frame
from tracekit.findings.finding import Finding
from tracekit.model.clocks import clocks_are_comparable, largest_pair_error_ns
from tracekit.model.events import Int64
from tracekit.model.run import Run

__all__ = ["CriticalPath", "RankActivities", "Stretch", "critical_path"]

_TRANSFER_ACTIVITY = "communication"
_MOST_ERROR = 0.05  # of the step, by which clocks may be off: what is shorter than that is no finding anyway

_Part = tuple[int, Segment | Link, int, int]
"""Number of a step, and what is on its chain from when to when, on the run's clock."""

_OTHER = ACTIVITIES.index("other")
_NO_PHASE = STEP_PHASES.index("other")
_AT_ONCE = 10_000  # stretches, which bounds the memory
Times = dict[tuple[str, str], int]  # of each activity and phase, in ns


@dataclass(frozen=True, kw_only=True)
class Stretch:
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
        sums: Counter[str] = Counter()
        for (activity, _), time_ns in self.times_ns.items():
            sums[activity] += time_ns
        return dict(sums)


@dataclass(frozen=True, kw_only=True)
class CriticalPath:
    """The chains that bound the steps.

    Attributes:
        parts: rows of tables.CRITICAL_PATH, the longest first.
        steps: how many steps were walked.
        stretches: what the chains consist of, in order of time; those of a step are the whole step.
        findings: none; the diagnosis reads the chain.
    """

    parts: Frame = Frame(tables.CRITICAL_PATH)
    steps: int
    stretches: tuple[Stretch, ...] = ()
    findings: tuple[Finding, ...] = ()


def critical_path(run: Run, arrivals: Arrivals) -> CriticalPath:
    """Return the chains of all steps that all ranks completed.

    There are none if the clocks of its hosts were not measured, or may be off by a notable part of a step, or if ranks
    do not communicate, so that no chain leads from one to another.
    """
    steps = sorted(run.common_steps()) if _order_of_ranks_is_known(run) else []
    stretches: list[Stretch] = []
    if steps:
        walk = BackwardWalk(run, arrivals)
        stretches = _stretches(walk, [part for step in steps for part in reversed(list(_chain(walk, step)))])
    total_ns: Counter[tuple[int, str, str]] = Counter()
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


def _stretches(walk: BackwardWalk, parts: Sequence[_Part]) -> list[Stretch]:
    """Return the parts of a chain, divided by activity and phase."""
    times_ns = _times_ns(walk.run, parts)
    stretches = []
    for (step, part, start_ns, end_ns), part_times_ns in zip(parts, times_ns, strict=True):
        if isinstance(part, Link):
            name, instance = walk.name(part.instance), part.instance
        else:
            name, instance = part.leads_to, part.leads_to_instance
        stretches.append(
            Stretch(
                step=step,
                rank=walk.run.ranks[part.place].rank,
                name=name,
                instance=instance,
                start_ns=start_ns,
                end_ns=end_ns,
                times_ns=part_times_ns,
            )
        )
    return stretches


def _times_ns(run: Run, parts: Sequence[_Part]) -> list[Times]:
    """Return the time of each part by activity and phase."""
    result: list[Times] = [{} for _ in parts]
    for place in sorted({part.place for _, part, _, _ in parts}):
        activities = RankActivities(run.ranks[place][PHASE_ACTIVITIES])
        rows, begins_ns, lengths_ns, known_ns = [], [], [], []
        for row, (_, part, start_ns, end_ns) in enumerate(parts):
            if part.place != place:
                continue
            begin_ns, length_ns = part.begin_ns + start_ns - part.start_ns, end_ns - start_ns
            if isinstance(part, Link):
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
    """The activities of one rank by stretch of a phase.

    Within a stretch of a phase, activities are taken as spread evenly: their sums over whole phases are exact.
    """

    def __init__(self, table: PhaseActivities) -> None:
        self._begin_ns, first, stretch = np.unique(table.begin_ns, return_index=True, return_inverse=True)
        self._end_ns, self._phase = table.end_ns[first], table.phase[first]
        time_ns = np.zeros((len(first), len(ACTIVITIES)))
        np.add.at(time_ns, (stretch, table.activity), table.time_ns)
        self._share = time_ns / np.maximum(time_ns.sum(axis=1, keepdims=True), 1.0)

    def divide(self, begin_ns: Int64, end_ns: Int64, known_ns: Sequence[Mapping[str, int]]) -> list[Times]:
        """Return the time of each of s stretches by activity and phase.

        begin_ns, end_ns: of the stretches, on the rank's wall clock, int64 [s].
        known_ns: ns of each stretch by activity, where they were measured. The remaining time is divided among the
        other activities as is usual in its phases. With an empty mapping all time is. Outside of recorded phases it is
        compute.
        """
        parts = (slice(at, at + _AT_ONCE) for at in range(0, len(known_ns), _AT_ONCE))
        return [times for part in parts for times in self._divide(begin_ns[part], end_ns[part], known_ns[part])]

    def _divide(self, begin_ns: Int64, end_ns: Int64, known_ns: Sequence[Mapping[str, int]]) -> list[Times]:
        first = np.searchsorted(self._end_ns, begin_ns, side="right")
        count = np.maximum(np.searchsorted(self._begin_ns, end_ns, side="left") - first, 0)
        which = np.repeat(np.arange(len(first)), count)
        place = np.arange(len(which)) + np.repeat(first - np.cumsum(count) + count, count)
        phase = self._phase[place]
        overlap_ns = np.minimum(self._end_ns[place], end_ns[which]) - np.maximum(self._begin_ns[place], begin_ns[which])
        weights = self._share[place] * overlap_ns[:, None]
        usual = np.zeros((len(first), len(ACTIVITIES)))
        np.add.at(usual, which, weights)
        by_phase = np.zeros((len(first), len(STEP_PHASES), len(ACTIVITIES)))
        np.add.at(by_phase, (which, phase), weights)
        # Of an activity that is unusual in these phases, each phase has as much as the stretch has of the phase.
        of_stretch = np.zeros((len(first), len(STEP_PHASES)))
        np.add.at(of_stretch, (which, phase), overlap_ns)
        of_stretch[count == 0, _NO_PHASE] = 1.0
        by_phase = np.where(by_phase.any(axis=1, keepdims=True), by_phase, of_stretch[..., None])
        times_ns = apportion(_by_activity(end_ns - begin_ns, usual, known_ns), by_phase.swapaxes(1, 2).copy())
        result: list[Times] = [{} for _ in known_ns]
        found = np.nonzero(times_ns)
        columns = (rows.tolist() for rows in (*found, times_ns[found]))
        for stretch, activity, number, time_ns in zip(*columns, strict=True):
            result[stretch][ACTIVITIES[activity], STEP_PHASES[number]] = time_ns
        return result

    def phase_at(self, time_ns: int) -> str:
        """Return the phase at a time on the rank's wall clock; "other" outside of the recorded steps."""
        at = int(np.searchsorted(self._begin_ns, time_ns, side="right")) - 1
        return STEP_PHASES[self._phase[at] if at >= 0 and time_ns < self._end_ns[at] else _NO_PHASE]


def _by_activity(total_ns: Int64, usual: NDArray[np.float64], known_ns: Sequence[Mapping[str, int]]) -> Int64:
    """Return how long each of `ACTIVITIES` took of each time: as known, and the rest in the usual proportion."""
    times_ns = np.zeros(usual.shape, dtype=np.int64)
    for stretch, known in enumerate(known_ns):
        for name, time_ns in known.items():
            activity = ACTIVITIES.index(name)
            times_ns[stretch, activity], usual[stretch, activity] = time_ns, 0.0
        if known and not usual[stretch].any():
            usual[stretch, _OTHER] = 1.0
    return times_ns + apportion(total_ns - times_ns.sum(axis=1), usual)
