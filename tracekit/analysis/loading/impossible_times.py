"""In which steps a rank's clock jumps that nearly all its collectives agree with: only the first or last ones do not.

Nobody leaves a synchronising collective before all ranks have entered it. Where one rank seems to, or to enter when all
others have left, its clock was another one then. A jump behind or before several collectives is found by `jumps`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tracekit.analysis.loading.jumped_steps import steps_between
from tracekit.model.clocks import clocks_are_comparable
from tracekit.model.collectives import MatchedGroup
from tracekit.model.communication import SYNCHRONISING_WITH_ANY_SHARES
from tracekit.model.events import Int64
from tracekit.model.notes import Note
from tracekit.model.ranks import format_ranges
from tracekit.model.run import Run

_FEWEST_RANKS = 3  # of one machine: of fewer, all that is known is that one is wrong
_MOST_AT_END = 2  # collectives that disagree: `jumps` finds more
_FEWEST_AGREEING = 3
_NOTABLE_PART = 0.02  # of a step
_NOTABLE_NS = 50_000
_FAR_NS = 2**62  # more than any time

__all__ = ["ImpossibleTimes", "impossible_time_notes", "impossible_times"]


@dataclass(frozen=True, kw_only=True)
class ImpossibleTimes:
    """A jump of a rank's clock near an end of its recording.

    Attributes:
        steps: which may contain it.
        off_ns: the clock jumps at least so far.
        or_others: those that the rank communicates with may have jumped instead.
    """

    steps: frozenset[int]
    off_ns: int
    or_others: bool


class _Jump(NamedTuple):
    """A jump of a rank's clock between two of its collectives, given as rows; the rest as in `ImpossibleTimes`."""

    rank: int
    before: int
    after: int
    off_ns: int
    or_others: bool


def impossible_times(run: Run, jumped: Mapping[int, frozenset[int]]) -> dict[int, ImpossibleTimes]:
    """Return the jumps of clocks that the first or last collectives of a rank show, by rank.

    jumped: steps in which clocks are known to jump, by rank.
    """
    if not clocks_are_comparable(run.ranks, run.clocks):
        return {}
    result: dict[int, ImpossibleTimes] = {}
    for matched in run.collectives:
        for jump in _jumps_near_ends(run, matched):
            summary = run.ranks[run.places[jump.rank]]
            lengths_ns = [s.step_ns for s in (*summary.left_out, *summary.steps)]
            if not lengths_ns or jump.off_ns <= _NOTABLE_PART * float(np.median(lengths_ns)):
                continue
            steps = frozenset(steps_between(summary, jump.before, jump.after))
            if steps - jumped.get(summary.rank, frozenset()):
                found = ImpossibleTimes(steps=steps, off_ns=jump.off_ns, or_others=jump.or_others)
                result.setdefault(summary.rank, found)
    return result


def _jumps_near_ends(run: Run, matched: MatchedGroup) -> Iterator[_Jump]:
    """Yield the jumps that a group shows.

    An instance bounds how far a clock is ahead: the rank starts before all others have ended, and ends after all others
    have started. It tells nothing where these contradict each other.
    """
    row = matched.row[:, SYNCHRONISING_WITH_ANY_SHARES[matched.kind] & (matched.row >= 0).all(axis=0)]
    if not row.shape[1]:
        return
    start_ns, end_ns = np.empty((2, *row.shape), dtype=np.int64)
    for place, rank in enumerate(matched.ranks.tolist()):
        number = run.places[rank]
        collectives = run.ranks[number].collectives
        start_ns[place] = run.clocks[number].to_run(collectives.start_ns[row[place]])
        end_ns[place] = run.clocks[number].to_run(collectives.end_ns[row[place]])
    machines = [run.ranks[run.places[rank]].machine or rank for rank in matched.ranks.tolist()]
    for clocks in (*_clocks(machines), *_sides(machines, start_ns, end_ns)):
        ordered = np.concatenate(clocks)
        begins = np.cumsum([0, *map(len, clocks[:-1])])
        last_start_ns = np.maximum.reduceat(start_ns[ordered], begins)
        first_end_ns = np.minimum.reduceat(end_ns[ordered], begins)
        for number, after, off_ns in _jumps(last_start_ns, first_end_ns):
            others = {machine for place, machine in enumerate(machines) if place not in clocks[number]}
            if len(others) == 1 and len(clocks) > 2 and machines[clocks[number][0]] not in others:
                continue  # it may be the clock of the other machine
            for place in clocks[number]:
                before_row, after_row = row[place, after - 1 : after + 1].tolist()
                yield _Jump(int(matched.ranks[place]), before_row, after_row, off_ns, or_others=len(clocks) == 2)


def _clocks(machines: Sequence[object]) -> Iterator[list[list[int]]]:
    """Yield the ranks of a group, as places in it, that share a clock: each by itself, and those of each machine.

    One of several machines may be that whose clock is wrong, and one rank of a machine.
    """
    of_machine: dict[object, list[int]] = {}
    for place, machine in enumerate(machines):
        of_machine.setdefault(machine, []).append(place)
    ranks = [[place] for place in range(len(machines))]
    if len(ranks) >= _FEWEST_RANKS or len(of_machine) == 1:
        yield ranks
    if len(of_machine) > 1 and (len(of_machine) < len(ranks) or len(ranks) < _FEWEST_RANKS):
        yield list(of_machine.values())


def _sides(machines: Sequence[object], start_ns: Int64, end_ns: Int64) -> Iterator[list[list[int]]]:
    """Yield the two sides of a group, as places in it, of which one is out of a collective before the other enters it.

    They are sought near the ends of the recording, where each side has several clocks: ranks whose machines have no
    names may share one, and several machines may be set at once. machines: a rank stands for one without a name.
    start_ns, end_ns: int64 [ranks, instances].
    """
    late = start_ns > end_ns.min(axis=0) + _NOTABLE_NS
    late = late[:, np.r_[: min(_MOST_AT_END, late.shape[1]), max(late.shape[1] - _MOST_AT_END, 0) : late.shape[1]]]
    for side in np.unique(late, axis=1).T:
        sides = [np.flatnonzero(side).tolist(), np.flatnonzero(~side).tolist()]
        names = [{machines[place] for place in places} for places in sides]
        if min(map(len, names)) > 1 and names[0].isdisjoint(names[1]):
            yield sides


def _jumps(last_start_ns: Int64, first_end_ns: Int64) -> Iterator[tuple[int, int, int]]:
    """Yield each of k clocks that jumps, the first instance behind the jump, and by how much it jumps at least.

    Of m instances it is given, int64 [k, m] each, when the last rank of a clock starts and when the first one ends.
    """
    if len(last_start_ns) < 2:
        return
    all_started_ns, first_ended_ns = _latest_of_others(last_start_ns), -_latest_of_others(-first_end_ns)
    tells = all_started_ns <= first_ended_ns
    least_ns = np.where(tells, last_start_ns - first_ended_ns, -_FAR_NS)
    most_ns = np.where(tells, first_end_ns - all_started_ns, _FAR_NS)
    contradict = least_ns.max(axis=1) > most_ns.min(axis=1) + _NOTABLE_NS
    for clock in np.flatnonzero(contradict).tolist():
        jump = _jump_near_an_end(least_ns[clock], most_ns[clock])
        if jump is not None:
            yield clock, *jump


def _latest_of_others(time_ns: Int64) -> Int64:
    """Return int64 [k, m]: of k ranks, the latest of m times of the other ranks."""
    columns = np.arange(time_ns.shape[1])
    latest = time_ns.argmax(axis=0)
    others_ns = time_ns.copy()
    others_ns[latest, columns] = -_FAR_NS
    result = np.broadcast_to(time_ns.max(axis=0), time_ns.shape).copy()
    result[latest, columns] = others_ns.max(axis=0)
    return result


def _jump_near_an_end(least_ns: Int64, most_ns: Int64) -> tuple[int, int] | None:
    """Return the first instance after a jump, and by how much the clock jumps at least; None if there is no such jump.

    The clock is ahead by at least and at most so much at each instance, int64 [m]. All but the first or the last few
    agree, and each of these contradicts them.
    """
    count = len(least_ns)
    for few in range(1, _MOST_AT_END + 1):
        for after, is_end in ((few, np.arange(count) < few), (count - few, np.arange(count) >= count - few)):
            low_ns, high_ns = least_ns[~is_end], most_ns[~is_end]
            if np.count_nonzero(high_ns < _FAR_NS) < _FEWEST_AGREEING or low_ns.max() > high_ns.min():
                continue
            off_ns = np.maximum(least_ns[is_end] - high_ns.min(), low_ns.max() - most_ns[is_end])
            if off_ns.min() > _NOTABLE_NS:
                return after, int(off_ns.max())
    return None


def impossible_time_notes(run: Run, found: Mapping[int, ImpossibleTimes]) -> list[Note]:
    """Return a note about each rank whose clock jumps near an end of its recording."""
    notes = []
    for rank, jump in sorted(found.items()):
        file = run.ranks[run.places[rank]].file_name
        or_others, others = (", or that of its peers,", "these") if jump.or_others else ("", "all other ranks")
        text = (
            f"{file}: its clock{or_others} jumps by {jump.off_ns / 1e6:,.3f} ms or more, for it has collectives when "
            f"{others} are out of them; step {format_ranges(jump.steps)} may contain the jump and does not count"
        )
        notes.append(Note(kind="clock_step", severity="warning", file=file, text=text).about_rank(rank))
    return notes
