"""From paths to a `Run`: find the files, summarise each rank in a worker, match the ranks.

A rank that cannot be used gives a note and counts as missing; the other ranks are analysed.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path

from tracekit.analysis.clocks.align import align
from tracekit.analysis.clocks.jumped_steps import steps_with_jumps, with_jumped_steps
from tracekit.analysis.events.communication_rules import CommunicationRule
from tracekit.analysis.guard import Guard
from tracekit.analysis.incomparable_ranks import without_incomparable_times
from tracekit.analysis.matching.collectives import groups_of_run, match_collectives
from tracekit.analysis.matching.messages import match_messages
from tracekit.analysis.matching.peers import with_inferred_peers
from tracekit.analysis.per_rank.options import SummaryOptions
from tracekit.analysis.per_rank.summarize import RankFailure
from tracekit.analysis.per_rank.summary_cache import look_up, summarize_and_store
from tracekit.analysis.pipeline.layout.inferred import with_inferred_pipelines
from tracekit.analysis.pipeline.layout.manual import with_manual_pipelines
from tracekit.analysis.pool.workers import LOST, Progress, map_ranks
from tracekit.analysis.run_notes import inferred_note, left_out_notes, missing_note, other_run_notes, step_notes
from tracekit.analysis.sections import SECTIONS
from tracekit.analysis.step_time.step_lengths import first_steps_to_leave_out
from tracekit.errors import InputError, TracekitError
from tracekit.model.communication import GroupKey
from tracekit.model.messages import MatchedMessages
from tracekit.model.notes import Note
from tracekit.model.ranks import format_ranges
from tracekit.model.run import ClockModel, LeftOutStep, OtherRun, Run, clocks_are_comparable
from tracekit.model.summary import RankSummary
from tracekit.read.cache.spool import DecodedSpool
from tracekit.read.cache.store import CacheChoice, chosen_cache
from tracekit.read.decode.decoder import chosen_decoder
from tracekit.read.files.discover import Discovery, discover
from tracekit.read.files.foreign_jobs import started_far_apart
from tracekit.read.files.identify import identify
from tracekit.read.files.storage import TracePath, version_of

__all__ = ["SMALL_RUN_BYTES", "Paths", "load", "size_bytes_of"]

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
"""A folder, a glob or a file, local or a URL such as s3://bucket/run; or several of them."""


SMALL_RUN_BYTES = 4 << 20
"""Compressed: for less, starting workers costs more than it saves."""

_LISTED_REASONS = 8
_COMPARABLE = "which ranks can be compared"


def load(
    paths: Paths,
    *,
    run: str | None = None,
    attempt: int | None = None,
    ranks: Iterable[int] | None = None,
    options: SummaryOptions | None = None,
    jobs: int | None = 1,
    executor: Executor | None = None,
    progress: Progress | None = None,
    cache: CacheChoice = False,
    spool: DecodedSpool | None = None,
    communication_rules: Iterable[CommunicationRule | str] = (),
) -> Run:
    """Return the newest run below `paths`, or the given `run` and `attempt`. Each rank is read by this process or a
    worker.

    `cache=True` stores the summary of each rank for the next time. The place is given by `TRACEKIT_CACHE`; without it,
    it is a folder `.tracekit-cache` beside a trace that the probe wrote, and the user's cache folder for other traces.
    If `cache` is a path, the folder is there.

    `jobs=None` starts as many workers as there are processors, and none for a small run. Workers import the main module
    again, so a script with workers needs the guard `if __name__ == "__main__":`. An `executor`, such as
    `dask.distributed.Client(...).get_executor(pure=False)`, replaces the workers. A call whose worker dies is tried
    again. If that worker dies too, only its rank is lost. Workers of this machine put what they decode into the
    `spool`.

    A first step of a window that is longer than the others is left out of everything, and a note says so; steps that
    the `options` select are all kept.

    `communication_rules` say of kernels, by their names, that they communicate, and how (`^my_ring=all_to_all`), or
    that they do not (`^my_cast=compute`). They are tried before those of the `options`.

    Raises InputError when there is no usable trace, or none of the selected `ranks` or steps is there. Raises
    UsageError when there is no such `run` or `attempt`, when a rule is none, or when $TRACEKIT_NATIVE asks for a
    decoder that there is not.
    """
    chosen_decoder()  # raises now if the choice is wrong, and not once per rank
    path_texts = [os.fspath(paths)] if isinstance(paths, str | os.PathLike) else [os.fspath(path) for path in paths]
    summary_cache = chosen_cache(cache)
    selected = None if ranks is None else frozenset(ranks)
    summary_options = (options or SummaryOptions()).with_rules(communication_rules)

    def outcomes_of(
        discovery: Discovery, options: SummaryOptions, chosen: Collection[int] | None = selected
    ) -> list[RankSummary | RankFailure]:
        files = {
            rank: tuple(window.path.absolute() for window in windows)  # a worker may stand in another folder
            for rank, windows in discovery.chosen.ranks.items()
            if chosen is None or rank in chosen
        }
        if not files:
            present = format_ranges(discovery.chosen.ranks)
            raise InputError(
                f"{' '.join(path_texts)}: none of the selected ranks is there", hint=f"there are ranks {present}"
            )
        lookup = look_up([(rank, windows, options) for rank, windows in files.items()], summary_cache, spool)
        size_bytes = size_bytes_of(task.paths for (task,) in lookup.missing)
        workers = 1 if jobs is None and executor is None and size_bytes < SMALL_RUN_BYTES else jobs
        outcomes_of_missing = map_ranks(
            summarize_and_store, lookup.missing, jobs=workers, executor=executor, progress=progress
        )
        return lookup.complete(
            [
                _worker_died(task.rank, task.paths) if result is LOST else result
                for result, (task,) in zip(outcomes_of_missing, lookup.missing, strict=True)
            ]
        )

    steps = summary_options.steps
    settled = replace(summary_options, settled=steps.is_everything and not steps.whole)
    discovery = discover(path_texts, run=run, attempt=attempt)
    outcomes = outcomes_of(discovery, settled)
    if discovery.is_provisional and started_far_apart(_first_events_ns(outcomes)):
        discovery = discover(path_texts, run=run, attempt=attempt, identify_file=identify)
        outcomes = outcomes_of(discovery, settled)
    ranks_read = [rank for rank in discovery.chosen.ranks if selected is None or rank in selected]
    # `assemble` does this again, and notes an error in it.
    outcomes = Guard().run(_COMPARABLE, outcomes, without_incomparable_times, outcomes)
    jumped: dict[int, frozenset[int]] = {}
    about_jumps = Guard()
    while True:
        guard = Guard()
        left_out = (
            guard.run("which first steps to leave out", (), _first_steps, outcomes, jumped) if settled.settled else ()
        )
        # A worker knows one rank. All must leave out the same first steps: those that do not are summarised again.
        without = {rank: jumped.get(rank, frozenset()).union(step.step for step in left_out) for rank in ranks_read}
        of_rank = dict(zip(ranks_read, outcomes, strict=True))
        again = [rank for rank, outcome in of_rank.items() if _leaves_out_others(outcome, without[rank])]
        for numbers in sorted({tuple(sorted(without[rank])) for rank in again}):
            alike = [rank for rank in again if without[rank] == set(numbers)]
            options = replace(summary_options, without=numbers)
            of_rank |= zip(alike, outcomes_of(discovery, options, alike), strict=True)
        outcomes = list(of_rank.values())
        loaded = assemble(path_texts, discovery, outcomes, selected, left_out, guard)
        if jumped or not (jumped := about_jumps.run("steps in which clocks jump", {}, steps_with_jumps, loaded)):
            break
    if summary_cache is not None:
        summary_cache.prune()
    return replace(
        loaded,
        notes=(*with_jumped_steps(loaded.notes, loaded.ranks, jumped), *about_jumps.notes),
        sections=summary_options.sections,
        communication_rules=tuple(rule.text for rule in summary_options.rules if not rule.source),
    )


def _first_steps(
    outcomes: Iterable[RankSummary | RankFailure], jumped: Mapping[int, Collection[int]]
) -> tuple[LeftOutStep, ...]:
    """Return the first steps to leave out; the steps in which a rank's clock `jumped` do not count."""
    ranks = [outcome for outcome in outcomes if isinstance(outcome, RankSummary)]
    counting = [
        replace(
            summary,
            steps=tuple(step for step in summary.steps if step.step not in jumped[summary.rank]),
            left_out=tuple(step for step in summary.left_out if step.step not in jumped[summary.rank]),
        )
        if summary.rank in jumped
        else summary
        for summary in ranks
    ]
    return first_steps_to_leave_out(counting)


def _leaves_out_others(outcome: RankSummary | RankFailure, numbers: Collection[int]) -> bool:
    """Return whether a rank has left out other steps than those of these numbers."""
    if isinstance(outcome, RankFailure) or not outcome.is_measured:
        return False
    return {step.step for step in outcome.left_out} != set(numbers).intersection(outcome.recorded_steps)


def _first_events_ns(outcomes: Iterable[RankSummary | RankFailure]) -> list[int]:
    ranks = [outcome for outcome in outcomes if isinstance(outcome, RankSummary)]
    return [rank.first_event_ns for rank in ranks if rank.first_event_ns is not None]


def size_bytes_of(files: Iterable[Sequence[TracePath]]) -> int:
    """Return the size of the files of ranks, as they lie there."""
    return sum(version_of(path).size_bytes for windows in files for path in windows)


def _worker_died(rank: int, windows: Sequence[TracePath]) -> RankFailure:
    name = windows[0].name
    text = f"rank {rank}: {name}: the worker that read it died, twice; left out (out of memory? try --jobs 1)"
    return RankFailure(rank=rank, notes=(Note(kind="worker_died", severity="error", rank=rank, file=name, text=text),))


def assemble(
    paths: Sequence[str],
    discovery: Discovery,
    outcomes: Sequence[RankSummary | RankFailure],
    selected: frozenset[int] | None,
    left_out: tuple[LeftOutStep, ...] = (),
    guard: Guard | None = None,
) -> Run:
    """Return the run that consists of the ranks' outcomes. Raises InputError when no rank could be used."""
    guard = guard or Guard()
    notes = list(discovery.notes)
    outcomes = guard.run(_COMPARABLE, outcomes, without_incomparable_times, outcomes)
    by_rank: dict[int, RankSummary] = {}
    for outcome in outcomes:
        notes += outcome.notes
        if isinstance(outcome, RankFailure):
            continue
        if outcome.rank in by_rank:
            file = Path(outcome.files[0]).name
            text = f"rank {outcome.rank}: {file}: another file is of rank {outcome.rank} too; left out"
            notes.append(Note(kind="duplicate_rank", severity="error", rank=outcome.rank, file=file, text=text))
            continue
        by_rank[outcome.rank] = outcome
    if not by_rank:
        failed = [note.text for note in notes if note.severity == "error"]
        more = f"; and {len(failed) - _LISTED_REASONS} more" * (len(failed) > _LISTED_REASONS)
        reasons = "; ".join(failed[:_LISTED_REASONS]) + more
        message = f"{' '.join(paths)}: no trace in it can be used ({reasons})"
        if any(isinstance(outcome, RankFailure) and outcome.internal_error for outcome in outcomes):
            raise TracekitError(message, hint="please report it with a trace that shows it")
        raise InputError(message, hint="record or copy the traces again")
    ranks = tuple(by_rank[rank] for rank in sorted(by_rank))
    if not any(summary.steps or summary.unmeasured is not None for summary in ranks):
        recorded = format_ranges({step for summary in ranks for step in summary.recorded_steps})
        raise InputError(f"{' '.join(paths)}: none of the selected steps is there", hint=f"recorded steps: {recorded}")
    world_size = max((s.world_size for s in ranks if s.world_size is not None), default=None)
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
