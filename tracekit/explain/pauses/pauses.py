"""Which ranks pause their training for checkpoints, evaluation or logging, what that costs, and what to do about it.

A pause costs the steps of its rank, and the time that other ranks wait in communication for it.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from tracekit.explain.pauses import tables
from tracekit.explain.pauses.tables import PAUSE_TIMES, RankPauses
from tracekit.explain.section import Section
from tracekit.explain.step_time.step_lengths import mean_step_ns
from tracekit.findings.finding import Condition, Finding, Remedy
from tracekit.findings.hosts import PAUSE_ENTRIES, longer_pause_text, pause_text
from tracekit.findings.thresholds import NOTABLE_SHARE
from tracekit.model.communication import KINDS, MatchedGroup
from tracekit.model.events import ABSENT, Bool, Int64
from tracekit.model.intervals import Intervals
from tracekit.model.run import Run, clocks_are_comparable
from tracekit.model.spans import CHECKPOINT_ACTIONS, CHECKPOINT_FUNCTIONS
from tracekit.model.table import Frame
from tracekit.rank.pauses import PAUSES, checkpoint_calls
from tracekit.rank.recorded_steps import RecordedSteps
from tracekit.stats.uncertainty import leave_one_out_medians

_AS_LONG = 0.5  # times the longest: a rank that pauses at least so long pauses as well
_EXPLAINED = 0.5  # of a rank's delay

_JOINED_NS = 20_000  # from one logging call to the next: they count as one
_SHORTEST_NS = 50_000  # of logging: less is not kept


def recorded_pauses(recorded: RecordedSteps) -> RankPauses:
    """Return the pauses of the step's thread in the recorded steps."""
    windows, times = recorded.lanes.windows, recorded.phases.pauses
    calls = checkpoint_calls(recorded.trace.events, np.array([windows.thread], dtype=np.int64))
    of_kind = (times.checkpoint, times.evaluation, _long(times.logging))
    start_ns, end_ns = (np.concatenate([getattr(time, edge) for time in of_kind]) for edge in ("start_ns", "end_ns"))
    pause = np.repeat(np.arange(len(PAUSES), dtype=np.int32), [len(time) for time in of_kind])
    call = np.searchsorted(calls.start_ns, start_ns, side="right") - 1
    call = np.where(pause == PAUSES.index("checkpoint"), call, ABSENT)
    action, function = (np.append(column, ABSENT)[call].astype(np.int32) for column in (calls.action, calls.function))
    window = windows.index_of(start_ns)
    return RankPauses(
        pause=pause,
        action=action,
        function=function,
        step=np.where(window >= 0, windows.step[window], ABSENT),
        start_ns=start_ns,
        end_ns=end_ns,
        waiting_ns=recorded.lanes.exposed_communication.covered_ns(start_ns, end_ns),
    )


@dataclass(frozen=True, kw_only=True)
class CostlyPause:
    """A kind of pause, and what it costs.

    Attributes:
        longest: of the rank that pauses longest.
        ranks: those that pause about as long; empty if all do.
        waits_ns: for how long others wait for the longest, by kind of communication; None if that is not known, or
            nobody waits, as all ranks pause.
        waiting: how many ranks wait.
        conditions: what it takes to be worth a finding.
        longer_ns: by how much longer these ranks pause than the others, if all do.
    """

    longest: RankPause
    ranks: tuple[int, ...]
    waits_ns: Mapping[str, int] | None = None
    waiting: int = 0
    conditions: tuple[Condition, ...]
    longer_ns: float | None = None

    @property
    def is_notable(self) -> bool:
        return all(condition.holds for condition in self.conditions)

    @property
    def does(self) -> str:
        return self.longest.action or self.longest.pause

    @property
    def text(self) -> str:
        """Return who pauses, for how long, and who waits."""
        longest = self.longest
        if self.longer_ns is not None:
            return longer_pause_text(self.ranks, self.does, self.longer_ns)
        of_steps, kind = (len(longest.by_step_ns), longest.of_steps), _longest_wait(self.waits_ns)
        return pause_text(self.ranks, self.does, longest.each_ns, *of_steps, self.waiting, kind)


@dataclass(frozen=True, kw_only=True)
class Pauses:
    """`ranks`: rows of tables.PAUSES_BY_RANK."""

    ranks: Frame = Frame(tables.PAUSES_BY_RANK)
    findings: tuple[Finding, ...] = ()


def pauses(run: Run) -> Pauses:
    """Return the pauses of all ranks, and a finding on each kind that costs."""
    found = rank_pauses(run)
    waits = WaitsForPauses(run, found)
    rows = [_row(each, waits.by_kind_ns(each)) for each in found]
    return Pauses(ranks=rows, findings=tuple(_finding(costly) for costly in _costly_pauses(run, found, waits)))


def _row(pause: RankPause, waits_ns: Mapping[str, int] | None) -> dict[str, object]:
    steps = len(pause.by_step_ns)
    others_wait_ns = None if waits_ns is None else sum(waits_ns.values()) / steps
    return tables.PAUSES_BY_RANK.row(
        pause, steps=steps, others_wait_ns=others_wait_ns, wait_kind=_longest_wait(waits_ns)
    )


def _costly_pauses(run: Run, found: Sequence[RankPause], waits: WaitsForPauses) -> list[CostlyPause]:
    """Return the longest of each kind of pause, with what it takes to be worth a finding.

    A pause of some ranks costs if others wait for it for a notable part of the step. found: the pauses of all ranks.
    """
    step_ns = max(mean_step_ns(run), 1)
    training = [summary for summary in run.ranks if summary.is_measured and any(s.complete for s in summary.steps)]
    result = []
    for pause in PAUSES:
        of_kind = [each for each in found if each.pause == pause]
        longest = max(of_kind, key=lambda each: (each.mean_ns, -each.rank), default=None)
        if longest is None:
            continue
        ranks = tuple(each.rank for each in of_kind if each.mean_ns >= _AS_LONG * longest.mean_ns)
        conditions: tuple[Condition, ...] = (NOTABLE_SHARE.reached_by(longest.mean_ns / step_ns),)
        if len(ranks) == len(training):
            ranks = ranks if len(ranks) == 1 else ()
            result.append(CostlyPause(longest=longest, ranks=ranks, conditions=conditions))
            continue
        waits_ns = waits.by_kind_ns(longest) if conditions[0].holds else None
        if waits_ns is not None:
            share = sum(waits_ns.values()) / longest.of_steps / step_ns
            what = "what others wait for it, as a share of the step"
            conditions += (Condition(what=what, value=share, bound=NOTABLE_SHARE),)
        waiting = 0 if waits_ns is None else len(training) - len(ranks)
        result.append(
            CostlyPause(longest=longest, ranks=ranks, waits_ns=waits_ns, waiting=waiting, conditions=conditions)
        )
    return result


def _notable_pauses(run: Run, found: Sequence[RankPause]) -> list[CostlyPause]:
    return [costly for costly in _costly_pauses(run, found, WaitsForPauses(run, found)) if costly.is_notable]


def _longest_wait(waits_ns: Mapping[str, int] | None) -> str | None:
    return max(waits_ns, key=waits_ns.__getitem__) if waits_ns else None


def reason_of_delay(run: Run, ranks: Sequence[int], delay_ns: float) -> CostlyPause | None:
    """Return the pause that explains why these ranks delay the others by so long in a step; None if none does.

    If all ranks pause, these ranks do so longer than the others.
    """
    found = rank_pauses(run)
    for costly in _notable_pauses(run, found):
        if set(costly.ranks) == set(ranks) and costly.longest.each_ns >= _EXPLAINED * delay_ns:
            return costly
        of_kind = [each for each in found if each.pause == costly.longest.pause]
        others_ns = [each.working_ns for each in of_kind if each.rank not in ranks]
        longest = max((each for each in of_kind if each.rank in ranks), key=lambda each: each.working_ns, default=None)
        if costly.ranks or longest is None or not others_ns:
            continue
        longer_ns = longest.working_ns - statistics.median(others_ns)
        if longer_ns >= _EXPLAINED * delay_ns:
            return replace(costly, longest=longest, ranks=tuple(ranks), longer_ns=longer_ns)
    return None


def pauses_behind_delays(run: Run, delays_ns: Mapping[int, float]) -> dict[int, str]:
    """Return the kind of pause that explains a rank's delay in the mean step, for the ranks that have one alone."""
    found = rank_pauses(run)
    return {
        rank: costly.longest.pause
        for costly in _notable_pauses(run, found)
        for rank in costly.ranks
        if len(costly.ranks) == 1 and costly.longest.mean_ns >= _EXPLAINED * delays_ns.get(rank, 0.0) > 0
    }


def _finding(costly: CostlyPause) -> Finding:
    longest = costly.longest
    return PAUSE_ENTRIES[longest.pause](
        rank=costly.ranks[0] if len(costly.ranks) == 1 else None,
        ranks=costly.ranks,
        cause=longest.pause,
        time_ns=round(longest.mean_ns),
        remedy=cast(Remedy, longest.pause),
        evidence={
            "does": costly.does,
            "each_ns": round(longest.each_ns),
            "steps_with_it": len(longest.by_step_ns),
            "steps": longest.of_steps,
            "longest_ns": max(longest.by_step_ns.values()),
            "median_ns": round(statistics.median(longest.by_step_ns.values())),
            "others_wait_in_ns": costly.waits_ns,
            "waiting": costly.waiting,
            "wait_kind": _longest_wait(costly.waits_ns) if costly.waiting else None,
            "function": longest.function,
        },
        conditions=costly.conditions,
    )


class WaitsForPauses:
    """The waits for pauses of a run: what they are found from is made once, and only if there are any."""

    def __init__(self, run: Run, found: Sequence[RankPause]) -> None:
        """found: the pauses of all ranks."""
        self._run, self._found = run, found
        self._comparable = clocks_are_comparable(run.ranks, run.clocks)
        self._ready_ns: dict[int, Int64] = {}
        self._in_group: dict[int, tuple[Int64, Bool]] = {}

    def by_kind_ns(self, pause: RankPause) -> dict[str, int] | None:
        """Return for how long the others waited, the median of them, by kind of communication.

        A pause delays the rank's next collective. Others wait there until the rank comes, and for as long as the pause
        is longer than their own of the same step. None if the clocks of the ranks cannot be compared, or the rank
        communicates after no pause: who waits for it lies behind the recording.
        """
        if not self._comparable:
            return None
        kept, waits = pause.kept, Counter[str]()
        rank_index = self._run.index_of_rank[pause.rank]
        ready_ns = self._run.ranks[rank_index].collectives.ready_ns
        order = np.argsort(ready_ns, kind="stable")
        following = np.append(order, ABSENT)[np.searchsorted(ready_ns[order], kept.end_ns, side="left")]
        if (following == ABSENT).all():
            return None
        longer_ns = self._longer_ns(pause, kept)
        for matched in self._run.collectives:
            for kind, row, late_ns in self._late_ns(matched, pause.rank, following):
                waits[kind] += min(max(late_ns, 0), int(longer_ns[following == row].sum()))
        return {kind: time_ns for kind, time_ns in waits.items() if time_ns}

    def _longer_ns(self, pause: RankPause, kept: RankPauses) -> Int64:
        """Return by how much each pause is longer than those of the others in its step, int64 [n].

        The pauses of a step are shorter in proportion.
        """
        others = [each for each in self._found if each.pause == pause.pause and each.rank != pause.rank]
        lacking = len(self._run.ranks) - 1 - len(others)
        share = {
            step: 1 - min(np.median([each.by_step_ns.get(step, 0) for each in others] + [0] * lacking) / time_ns, 1.0)
            for step, time_ns in pause.by_step_ns.items()
            if others
        }
        shares = np.array([share.get(step, 1.0) for step in kept.step.tolist()])
        longer_ns: Int64 = np.rint(shares * kept.duration_ns).astype(np.int64)
        return longer_ns

    def _late_ns(self, matched: MatchedGroup, rank: int, rows: Int64) -> Iterator[tuple[str, int, int]]:
        """Yield which of some rows of a rank are collectives of a group: kind, row, and how much later than the median
        of the others the rank was ready.
        """
        column = np.flatnonzero(matched.ranks == rank)
        if not len(column) or len(matched.ranks) < 2:
            return
        of_rank = matched.row[int(column[0])]
        late_ns, known = self._lateness(matched)
        instances = np.flatnonzero((of_rank != ABSENT) & np.isin(of_rank, rows) & known)
        for instance in instances.tolist():
            late = int(late_ns[int(column[0]), instance])
            yield KINDS[int(matched.kind[instance])], int(of_rank[instance]), late

    def _lateness(self, matched: MatchedGroup) -> tuple[Int64, Bool]:
        """Return how much later than the median of the others each rank was ready, int64 [k, m], and a mask [m] of the
        instances that several ranks have.
        """
        if id(matched) not in self._in_group:
            present = matched.row != ABSENT
            ready_ns = np.zeros(matched.row.shape, dtype=np.int64)
            for column, rank in enumerate(matched.ranks.tolist()):
                rows = matched.row[column][present[column]]
                ready_ns[column][present[column]] = self._ready_of(self._run.index_of_rank[rank])[rows]
            others_ns = leave_one_out_medians(ready_ns.T, present.T).T
            self._in_group[id(matched)] = ready_ns - others_ns, present.sum(axis=0) > 1
        return self._in_group[id(matched)]

    def _ready_of(self, rank_index: int) -> Int64:
        """Return when a rank was ready for each of its collectives, on the run's clock, int64 [n]."""
        if rank_index not in self._ready_ns:
            collectives = self._run.ranks[rank_index].collectives
            self._ready_ns[rank_index] = self._run.clocks[rank_index].to_run(collectives.ready_ns)
        return self._ready_ns[rank_index]


@dataclass(frozen=True, kw_only=True, eq=False)
class RankPause:
    """The pauses of one kind of one rank, over its complete steps.

    Attributes:
        pause: one of `PAUSES`.
        action: of a checkpoint, the one of `CHECKPOINT_ACTIONS` that takes longest.
        function: what does it.
        by_step_ns: the time of each step that has such a pause.
        waiting_ns: the part in which it waits in communication.
        of_steps: how many complete steps the rank has.
        kept: the pauses one by one.
    """

    rank: int
    pause: str
    action: str | None
    function: str | None
    by_step_ns: dict[int, int]
    waiting_ns: int
    of_steps: int
    kept: RankPauses

    @property
    def total_ns(self) -> int:
        return sum(self.by_step_ns.values())

    @property
    def each_ns(self) -> float:
        """The mean of the steps that have such a pause."""
        return self.total_ns / len(self.by_step_ns)

    @property
    def mean_ns(self) -> float:
        """The mean of all steps."""
        return self.total_ns / self.of_steps

    @property
    def working_ns(self) -> float:
        """The mean of all steps, without what it waits in communication."""
        return (self.total_ns - self.waiting_ns) / self.of_steps


def rank_pauses(run: Run) -> list[RankPause]:
    """Return the pauses of all ranks in their complete steps, by kind and rank."""
    found = []
    for number, pause in enumerate(PAUSES):
        for summary in run.ranks:
            kept = summary[PAUSE_TIMES]
            complete = {step.step for step in summary.steps if step.complete}
            rows = np.flatnonzero((kept.pause == number) & np.isin(kept.step, sorted(complete)))
            if not len(rows):
                continue
            kept = kept.rows(rows)
            found.append(
                RankPause(
                    rank=summary.rank,
                    pause=pause,
                    action=_longest(kept, kept.action, CHECKPOINT_ACTIONS),
                    function=_longest(kept, kept.function, CHECKPOINT_FUNCTIONS),
                    by_step_ns=kept.by_step_ns(),
                    waiting_ns=int(kept.waiting_ns.sum()),
                    of_steps=len(complete),
                    kept=kept,
                )
            )
    return found


def _longest(kept: RankPauses, column: np.ndarray, names: tuple[str, ...]) -> str | None:
    known = column >= 0
    if not known.any():
        return None
    totals = np.bincount(column[known], kept.duration_ns[known], len(names))
    return names[int(totals.argmax())]


def _long(time: Intervals) -> Intervals:
    """Return some time without its short gaps, and then without its short parts."""
    between = Intervals(time.end_ns[:-1], time.start_ns[1:])
    gaps = between.duration_ns <= _JOINED_NS
    joined = time | Intervals.union_of(between.start_ns[gaps], between.end_ns[gaps])
    is_long = joined.duration_ns >= _SHORTEST_NS
    return Intervals(joined.start_ns[is_long], joined.end_ns[is_long])


PAUSES_SECTION: Section[Pauses] = Section(
    name="pauses",
    reads=(PAUSE_TIMES,),
    keeps={PAUSE_TIMES: recorded_pauses},
    analyze=lambda given: pauses(given.run),
    tables=(tables.PAUSES_BY_RANK,),
)
