"""Which steps count: all ranks leave out the same first steps.

A worker knows one rank. The ranks that must leave out other steps than they did are summarised again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from tracekit.analysis.guard import Guard
from tracekit.analysis.health.run_checks import without_incomparable_times, without_jumping_clocks
from tracekit.analysis.loading.assembly import assemble
from tracekit.analysis.loading.duplicate_ranks import without_duplicates, without_files_of_no_rank
from tracekit.analysis.loading.rank_reader import RankReader
from tracekit.analysis.per_rank.options import SummaryOptions
from tracekit.analysis.step_time.step_lengths import first_steps_to_leave_out
from tracekit.model.run import LeftOutStep, Run
from tracekit.model.summary import RankFailure, RankSummary
from tracekit.read.files.discover import Discovery

__all__ = ["run_of_counted_steps"]


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
    guard = Guard()
    outcomes = guard.run("which ranks can be compared", outcomes, without_incomparable_times, outcomes)
    outcomes = without_files_of_no_rank(outcomes)
    while True:
        run, outcomes = _assembled(reader, discovery, outcomes, options, leaves_out_first=leaves_out_first)
        comparable = guard.run("which clocks can be compared", outcomes, without_jumping_clocks, outcomes, run.clocks)
        if all(one is other for one, other in zip(comparable, outcomes, strict=True)):
            return replace(run, notes=(*run.notes, *guard.notes))
        outcomes = comparable  # what is known of the others may depend on these ranks


def _assembled(
    reader: RankReader,
    discovery: Discovery,
    outcomes: Sequence[RankSummary | RankFailure],
    options: SummaryOptions,
    *,
    leaves_out_first: bool,
) -> tuple[Run, list[RankSummary | RankFailure]]:
    """Return the run without the first steps that do not count, and its outcomes."""
    guard = Guard()
    left_out: tuple[LeftOutStep, ...] = ()
    if leaves_out_first:
        ranks = [outcome for outcome in outcomes if isinstance(outcome, RankSummary)]
        left_out = guard.run("which first steps to leave out", left_out, first_steps_to_leave_out, ranks)
    of_rank = dict(zip(reader.ranks_of(discovery), outcomes, strict=True))
    numbers = tuple(sorted(step.step for step in left_out))
    again = [rank for rank, outcome in of_rank.items() if _leaves_out_others(outcome, numbers)]
    if again:
        of_rank |= zip(again, reader.read(discovery, replace(options, without=numbers), again), strict=True)
    outcomes = list(of_rank.values())
    return assemble(reader.paths, discovery, outcomes, reader.selected, left_out, guard), outcomes


def _leaves_out_others(outcome: RankSummary | RankFailure, numbers: Collection[int]) -> bool:
    """Return whether a rank has left out other steps than those of these numbers."""
    if isinstance(outcome, RankFailure) or not outcome.is_measured:
        return False
    return {step.step for step in outcome.left_out} != set(numbers).intersection(outcome.recorded_steps)
