"""Which steps count: all ranks leave out the same first steps, and each rank those whose times are known to be wrong.

A worker knows one rank. The ranks that must leave out other steps than they did are summarised again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from tracekit.analysis.guard import Guard
from tracekit.analysis.health.run_checks import Reason, without_incomparable_times, without_times_of
from tracekit.analysis.loading.assembly import assemble
from tracekit.analysis.loading.duplicate_ranks import without_duplicates, without_files_of_no_rank
from tracekit.analysis.loading.impossible_times import ImpossibleTimes, impossible_time_notes, impossible_times
from tracekit.analysis.loading.incomparable_ranks import incomparable_in_run
from tracekit.analysis.loading.jumped_steps import steps_with_jumps, with_jumped_steps
from tracekit.analysis.loading.rank_reader import RankReader
from tracekit.analysis.per_rank.options import SummaryOptions
from tracekit.analysis.step_time.step_lengths import first_steps_to_leave_out
from tracekit.model.run import LeftOutStep, Run
from tracekit.model.summary import RankFailure, RankSummary
from tracekit.read.files.discover import Discovery

__all__ = ["run_of_counted_steps"]

_Wrong = Mapping[int, frozenset[int]]
"""The steps whose times are known to be wrong, by rank."""


def run_of_counted_steps(
    reader: RankReader,
    discovery: Discovery,
    outcomes: Sequence[RankSummary | RankFailure],
    options: SummaryOptions,
    *,
    leaves_out_first: bool,
) -> Run:
    """Return the run of the outcomes that `reader` has read, in its order. Raises what `assemble` does.

    leaves_out_first: whether a first step that is longer than the others is left out.
    """
    outcomes = without_duplicates(reader.ranks_of(discovery), outcomes)
    first = Guard()
    outcomes = first.run("which ranks can be compared", outcomes, without_incomparable_times, outcomes)
    outcomes = without_files_of_no_rank(outcomes)
    while True:
        run, outcomes = _assembled(reader, discovery, outcomes, options, {}, leaves_out_first=leaves_out_first)
        guard = Guard()
        jumped: _Wrong = guard.run("steps in which clocks jump", {}, steps_with_jumps, run)
        impossible: Mapping[int, ImpossibleTimes] = guard.run("impossible times", {}, impossible_times, run, jumped)
        wrong = _united(jumped, {rank: jump.steps for rank, jump in impossible.items()})
        reasons: Mapping[int, Reason] = guard.run("which ranks can be compared", {}, incomparable_in_run, run, wrong)
        if not reasons:
            break
        outcomes = without_times_of(outcomes, reasons)  # what is known of the others may depend on these ranks
    if wrong:
        run, _ = _assembled(reader, discovery, outcomes, options, wrong, leaves_out_first=leaves_out_first)
    notes = (
        *with_jumped_steps(run.notes, run.ranks, jumped),
        *impossible_time_notes(run, impossible),
        *first.notes,
        *guard.notes,
    )
    return replace(run, notes=notes)


def _united(*of_ranks: _Wrong) -> dict[int, frozenset[int]]:
    """Return the steps of each rank in any of the mappings."""
    ranks = frozenset[int]().union(*of_ranks)
    return {rank: frozenset[int]().union(*(steps.get(rank, ()) for steps in of_ranks)) for rank in ranks}


def _assembled(
    reader: RankReader,
    discovery: Discovery,
    outcomes: Sequence[RankSummary | RankFailure],
    options: SummaryOptions,
    wrong: _Wrong,
    *,
    leaves_out_first: bool,
) -> tuple[Run, Sequence[RankSummary | RankFailure]]:
    """Return the run without the steps that do not count, and its outcomes."""
    guard = Guard()
    left_out: tuple[LeftOutStep, ...] = ()
    if leaves_out_first:
        left_out = guard.run("which first steps to leave out", left_out, _first_steps, outcomes, wrong)
    of_rank = dict(zip(reader.ranks_of(discovery), outcomes, strict=True))
    first = frozenset(step.step for step in left_out)
    without = {rank: first | wrong.get(rank, frozenset()) for rank in of_rank}
    again = [rank for rank, outcome in of_rank.items() if _leaves_out_others(outcome, without[rank])]
    for numbers in sorted({tuple(sorted(without[rank])) for rank in again}):
        alike = [rank for rank in again if without[rank] == set(numbers)]
        of_rank |= zip(alike, reader.read(discovery, replace(options, without=numbers), alike), strict=True)
    outcomes = list(of_rank.values())
    return assemble(reader.paths, discovery, outcomes, reader.selected, left_out, guard), outcomes


def _first_steps(
    outcomes: Iterable[RankSummary | RankFailure], wrong: Mapping[int, Collection[int]]
) -> tuple[LeftOutStep, ...]:
    """Return the first steps to leave out. Ranks with `wrong` steps do not tell, unless all have some."""
    ranks = [outcome for outcome in outcomes if isinstance(outcome, RankSummary)]
    return first_steps_to_leave_out([summary for summary in ranks if summary.rank not in wrong] or ranks)


def _leaves_out_others(outcome: RankSummary | RankFailure, numbers: Collection[int]) -> bool:
    """Return whether a rank has left out other steps than those of these numbers."""
    if isinstance(outcome, RankFailure) or not outcome.is_measured:
        return False
    return {step.step for step in outcome.left_out} != set(numbers).intersection(outcome.recorded_steps)
