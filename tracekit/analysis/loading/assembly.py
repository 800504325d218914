"""One run of the outcomes of its ranks: they are matched, their clocks aligned, and notes say what is missing."""

from __future__ import annotations

from collections.abc import Sequence

from tracekit.analysis.clocks.align import align
from tracekit.analysis.guard import Guard
from tracekit.analysis.loading.run_notes import (
    inferred_note,
    left_out_notes,
    missing_note,
    other_run_notes,
    step_notes,
)
from tracekit.analysis.matching.collectives import groups_of_run, match_collectives
from tracekit.analysis.matching.messages import match_messages
from tracekit.analysis.matching.peers import with_inferred_peers
from tracekit.analysis.pipeline.layout.inferred import with_inferred_pipelines
from tracekit.analysis.pipeline.layout.manual import with_manual_pipelines
from tracekit.analysis.sections import SECTIONS
from tracekit.errors import InputError, TracekitError
from tracekit.model.clocks import ClockModel, clocks_are_comparable
from tracekit.model.communication import GroupKey
from tracekit.model.messages import MatchedMessages
from tracekit.model.notes import Note
from tracekit.model.ranks import format_ranges
from tracekit.model.run import LeftOutStep, OtherRun, Run
from tracekit.model.summary import RankFailure, RankSummary
from tracekit.read.files.discover import Discovery

__all__ = ["assemble"]

_LISTED_REASONS = 8


def assemble(
    paths: Sequence[str],
    discovery: Discovery,
    outcomes: Sequence[RankSummary | RankFailure],
    selected: frozenset[int] | None,
    left_out: tuple[LeftOutStep, ...] = (),
    guard: Guard | None = None,
) -> Run:
    """Return the run that consists of the ranks' outcomes, each of another rank.

    Raises InputError when no rank could be used.
    """
    guard = guard or Guard()
    notes = list(discovery.notes)
    notes += [note for outcome in outcomes for note in outcome.notes]
    by_rank = {outcome.rank: outcome for outcome in outcomes if isinstance(outcome, RankSummary)}
    if not by_rank:
        failed = [note.text for note in notes if note.severity == "error"]
        more = f"; and {len(failed) - _LISTED_REASONS} more" * (len(failed) > _LISTED_REASONS)
        reasons = "; ".join(failed[:_LISTED_REASONS]) + more
        message = f"{' '.join(paths)}: no trace in it can be used ({reasons})"
        if any(isinstance(outcome, RankFailure) and outcome.internal_error for outcome in outcomes):
            raise TracekitError(message, hint="please report it with a trace that shows it")
        raise InputError(message, hint="record or copy the traces again")
    ranks = tuple(by_rank[rank] for rank in sorted(by_rank))
    if not any(summary.steps or summary.left_out or summary.unmeasured is not None for summary in ranks):
        recorded = format_ranges({step for summary in ranks for step in summary.recorded_steps})
        raise InputError(f"{' '.join(paths)}: none of the selected steps is there", hint=f"recorded steps: {recorded}")
    world_size = max((s.world_size for s in ranks if s.world_size is not None), default=None)
    if world_size is not None and world_size < len(ranks):
        world_size = None  # the files contradict it
    if selected is not None:
        selected = frozenset(rank for rank in selected if world_size is None or rank < world_size)
    expected = set(range(world_size or 0)) if selected is None else selected
    missing = tuple(sorted(expected - by_rank.keys()))
    notes += missing_note(missing, len(ranks), len(expected))
    notes += guard.run("which steps are complete on all ranks", [], step_notes, ranks)
    notes += left_out_notes(left_out, ranks)
    groups = guard.run("process groups", (), groups_of_run, ranks, world_size)
    collectives, mismatches = guard.run("collectives", ((), []), match_collectives, ranks, groups, world_size)
    notes += mismatches
    unaligned = tuple(ClockModel(rank=summary.rank, method="none") for summary in ranks)
    clocks, about_clocks = guard.run("clocks", (unaligned, []), align, ranks, collectives)
    ranks, about_peers = guard.run("peers of messages", (ranks, []), with_inferred_peers, ranks)
    unmatched: tuple[MatchedMessages, list[Note]] = (MatchedMessages.empty(), [])
    messages, unlinked = guard.run("messages", unmatched, match_messages, ranks, clocks, selected)
    if len(messages) and not clocks_are_comparable(ranks, clocks):  # matched by order alone, they may join the clocks
        aligned = clocks, about_clocks
        clocks, about_clocks = guard.run("clocks by messages", aligned, align, ranks, collectives, messages)
        messages, unlinked = guard.run("messages", unmatched, match_messages, ranks, clocks, selected)
    notes += about_clocks
    ranks = guard.run("pipelines", ranks, _with_pipelines, ranks, groups, messages)
    # The same groups in the same order, now with the parallelism of the pipeline's groups.
    groups = guard.run("parallelism of process groups", groups, groups_of_run, ranks, world_size)
    notes += [*about_peers, *unlinked]
    for section in SECTIONS.values():
        if section.notes is not None:
            notes += guard.run(f"notes of section {section.name}", [], section.notes, ranks, selected is None)
    notes += guard.notes
    notes += inferred_note(ranks)
    others = tuple(
        OtherRun(run_id=r.run_id, attempt=r.attempt, ranks=len(r.ranks), start_ns=r.start_ns) for r in discovery.others
    )
    notes += other_run_notes(discovery)
    return Run(
        paths=tuple(paths),
        run_id=discovery.chosen.run_id,
        attempt=discovery.chosen.attempt,
        world_size=world_size,
        ranks=ranks,
        missing_ranks=missing,
        selected_ranks=None if selected is None else tuple(sorted(selected)),
        groups=groups,
        clocks=clocks,
        other_runs=others,
        notes=tuple(notes),
        messages=messages,
        collectives=collectives,
        left_out=left_out,
        progress=discovery.progress,
    )


def _with_pipelines(
    ranks: tuple[RankSummary, ...], groups: tuple[GroupKey, ...], messages: MatchedMessages
) -> tuple[RankSummary, ...]:
    return with_manual_pipelines(with_inferred_pipelines(ranks, groups), messages)
