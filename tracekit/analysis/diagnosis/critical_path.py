"""The chain of work and communication over all ranks that bounds the steps.

A step of the job begins when the last rank begins it, and ends when the last rank ends it, on the run's clock.
`BackwardWalk` finds the chain of a step. It is clamped where clocks disagree, so that every instant of the step belongs
to exactly one stretch.

    rank 0   |-- compute --|- wait -|==transfer==|- compute -|    the chain: rank 1's compute, the transfer, and the
    rank 1   |------ compute -------|==transfer==|- compute |     compute of rank 0 after it
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tracekit.analysis.diagnosis import columns
from tracekit.analysis.diagnosis.activities import RankActivities, Times
from tracekit.analysis.diagnosis.backward_walk import BackwardWalk, Link, Segment
from tracekit.analysis.diagnosis.parts import PHASE_ACTIVITIES
from tracekit.analysis.finding import Finding
from tracekit.analysis.step_time.step_lengths import mean_step_ns
from tracekit.analysis.stragglers.arrivals.arrivals import Arrivals
from tracekit.analysis.table import Frame
from tracekit.model.clocks import clocks_are_comparable, largest_pair_error_ns
from tracekit.model.run import Run

__all__ = ["CriticalPath", "Stretch", "critical_path"]

_TRANSFER_ACTIVITY = "communication"
_MOST_ERROR = 0.05  # of the step, by which clocks may be off: what is shorter than that is no finding anyway


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
        parts: rows of columns.CRITICAL_PATH, the longest first.
        steps: how many steps were walked.
        stretches: what the chains consist of, in order of time; those of a step are the whole step.
        findings: none; the diagnosis reads the chain.
    """

    parts: Frame = Frame(columns.CRITICAL_PATH)
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


_Part = tuple[int, Segment | Link, int, int]
"""Number of a step, and what is on its chain from when to when, on the run's clock."""


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
