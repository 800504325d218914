"""Which ranks, files and steps of some paths become one run, and what a reader must know of the whole.

`load` finds the files, summarises each rank in a worker, matches the ranks and aligns their clocks. A rank that cannot
be used gives a note and counts as missing; the other ranks are analysed.

Where several files say that they are of one rank, or one is of no rank of the job, only reading them whole may show it.

All ranks leave out the same first steps. A worker knows one rank, so ranks that must leave out other steps than they
did are summarised again.

Notes tell of missing ranks, of steps that not all ranks have, and of what was inferred.

Runs that are compared share their pseudonyms, so all names are collected before a run is loaded. Workers read each file
one more time for that.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tracekit.errors import InputError, TracekitError, UsageError
from tracekit.explain.pipeline.manual_layout import with_inferred_pipelines, with_manual_pipelines
from tracekit.explain.section import Guard
from tracekit.explain.sections import SECTIONS
from tracekit.explain.step_time.step_lengths import first_steps_to_leave_out
from tracekit.explain.strategies import without_broken_rings
from tracekit.health.run_checks import with_servers, without_incomparable_times, without_jumping_clocks
from tracekit.job.clocks.align import align
from tracekit.job.collectives import groups_of_run, match_collectives
from tracekit.job.messages import match_messages, with_inferred_peers
from tracekit.job.nameless_groups import with_inferred_groups
from tracekit.job.step_numbers import first_steps
from tracekit.loading.options import SummaryOptions
from tracekit.loading.rank_reader import RankReader
from tracekit.loading.workers import LOST, Progress, map_ranks
from tracekit.model.communication import MatchedMessages
from tracekit.model.metadata import MAX_RANKS
from tracekit.model.metadata import Progress as ProgressFile
from tracekit.model.names.pseudonyms import KindOfName, NameCollector, Pseudonyms
from tracekit.model.notes import Note
from tracekit.model.run import ClockModel, LeftOutStep, OtherRun, Run, clocks_are_comparable, format_ranges, ranks_text
from tracekit.model.summary import RankFailure, RankSummary
from tracekit.rank.communication_rules import CommunicationRule
from tracekit.read.cache.cache_dir import DecodedSpool
from tracekit.read.cache.store import CacheChoice, chosen_cache
from tracekit.read.decode.anonymous.trace import anonymous_progress, anonymous_run_id
from tracekit.read.decode.decoder import chosen_decoder, decode
from tracekit.read.files.discover import Discovery, discover
from tracekit.read.files.foreign_jobs import started_far_apart
from tracekit.read.files.identify import identify
from tracekit.read.files.storage import TracePath

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
"""A folder, a glob or a file, local or a URL such as s3://bucket/run; or several of them."""

_LISTED_REASONS = 8


def load(
    paths: Paths,
    *,
    run: str | None = None,
    attempt: int | None = None,
    ranks_from: str | None = None,
    ranks: Iterable[int] | None = None,
    options: SummaryOptions | None = None,
    jobs: int | None = 1,
    progress: Progress | None = None,
    cache: CacheChoice = False,
    spool: DecodedSpool | None = None,
    communication_rules: Iterable[CommunicationRule | str] = (),
    step_anchor: str | None = None,
    anonymize: bool | Pseudonyms = False,
) -> Run:
    """Return the newest run below `paths`, or the given `run` and `attempt`. Each rank is read by this process or a
    worker.

    `ranks_from` numbers files that do not name their rank: a regular expression that is searched in the path of a
    file, whose only group is the rank, such as `gpu([0-9]+)`.

    `cache=True` stores the summary of each rank for the next time. The place is given by `TRACEKIT_CACHE`; without it,
    it is a folder `.tracekit-cache` beside a trace that the probe wrote, and the user's cache folder for other traces.
    If `cache` is a path, the folder is there.

    `jobs=None` starts as many workers as there are processors, and none for a small run. Workers import the main module
    again, so a script with workers needs the guard `if __name__ == "__main__":`. A call whose worker dies is tried
    again. If that worker dies too, only its rank is lost. Workers put what they decode into the `spool`.

    A first step of a window that is longer than the others is left out of everything, and a note says so; steps that
    the `options` select are all kept.

    `communication_rules` say of kernels, by their names, that they communicate, and how (`^my_ring=all_to_all`), or
    that they do not (`^my_cast=compute`). They are tried before those of the `options`.

    `step_anchor` is a regular expression for the names of events on the host, each of which begins a step. Without it,
    steps are found by what is recorded (docs/definitions.md, "Steps").

    `anonymize` replaces the names of hosts, paths, modules, groups and annotations in all that is made of the run. The
    cache is not used then, and each file is read twice to number the names; runs to compare share `Pseudonyms`.

    Raises InputError when there is no usable trace, or none of the selected `ranks` or steps is there. Raises
    UsageError when there is no such `run` or `attempt`, when `ranks_from` finds no rank, when a rule or `step_anchor`
    is none, or when $TRACEKIT_NATIVE asks for a decoder that there is not.
    """
    chosen_decoder()  # raises now if the choice is wrong, and not once per rank
    path_texts = [os.fspath(paths)] if isinstance(paths, str | os.PathLike) else [os.fspath(path) for path in paths]
    if anonymize is True:
        meant = RunPaths(paths=path_texts, run=run, attempt=attempt, ranks_from=ranks_from)
        anonymize = pseudonyms_of([meant], jobs=jobs, progress=progress)
    pseudonyms = anonymize or None
    reader = RankReader(
        paths=path_texts,
        selected=None if ranks is None else frozenset(ranks),
        cache=None if pseudonyms is not None else chosen_cache(cache),
        spool=spool,
        jobs=jobs,
        progress=progress,
    )
    summary_options = replace((options or SummaryOptions()).with_rules(communication_rules), pseudonyms=pseudonyms)
    summary_options = summary_options.with_step_anchor(step_anchor)
    if summary_options.step_anchor is not None and pseudonyms is not None:
        raise UsageError("a step anchor matches no pseudonyms", hint="leave out --step-anchor or --anonymize")

    steps = summary_options.steps
    leaves_out_first = steps.is_everything and not steps.whole
    settled = replace(summary_options, settled=leaves_out_first)
    discovery = discover(path_texts, run=run, attempt=attempt, ranks_from=ranks_from)
    outcomes = reader.read(discovery, settled)
    if discovery.is_provisional and started_far_apart(_first_events_ns(outcomes)):
        discovery = discover(path_texts, run=run, attempt=attempt, ranks_from=ranks_from, identify_file=identify)
        outcomes = reader.read(discovery, settled)
    loaded = run_of_counted_steps(reader, discovery, outcomes, summary_options, leaves_out_first=leaves_out_first)
    if reader.cache is not None:
        reader.cache.prune()
    loaded = replace(
        loaded,
        sections=summary_options.sections,
        communication_rules=tuple(rule.text for rule in summary_options.rules if not rule.source),
        ranks_from=ranks_from,
        step_anchor=summary_options.step_anchor,
    )
    if pseudonyms is None:
        return loaded

    return anonymous_run(loaded, pseudonyms)


def _first_events_ns(outcomes: Iterable[RankSummary | RankFailure]) -> list[int]:
    ranks = [outcome for outcome in outcomes if isinstance(outcome, RankSummary)]
    return [rank.first_event_ns for rank in ranks if rank.first_event_ns is not None]


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
    if world_size is None:
        of_groups = (max(group.ranks) + 1 for summary in ranks for group in summary.groups if group.ranks)
        at_least = max(discovery.chosen.world_size or 0, *(size for size in of_groups if size <= MAX_RANKS), 0)
        world_size = at_least if at_least > max(1, *by_rank) else None
    if world_size is not None and world_size < len(ranks):
        world_size = None  # the files contradict it
    if selected is not None:
        selected = frozenset(rank for rank in selected if world_size is None or rank < world_size)
    expected = set(range(world_size or 0)) if selected is None else selected
    missing = tuple(sorted(expected - by_rank.keys()))
    notes += missing_note(missing, len(ranks), len(expected))
    notes += guard.run("which steps are complete on all ranks", [], step_notes, ranks)
    notes += left_out_notes(left_out, ranks)
    ranks, about_groups = guard.run("groups of collectives", (ranks, []), with_inferred_groups, ranks)
    groups = guard.run("process groups", (), groups_of_run, ranks, world_size)
    collectives, mismatches = guard.run("collectives", ((), []), match_collectives, ranks, groups, world_size)
    notes += [*about_groups, *mismatches]
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
    ranks = guard.run(
        "pipelines", ranks, lambda: with_manual_pipelines(with_inferred_pipelines(ranks, groups), messages)
    )
    ranks = without_broken_rings(ranks)
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


def without_duplicates(
    expected: Sequence[int], outcomes: Sequence[RankSummary | RankFailure]
) -> list[RankSummary | RankFailure]:
    """Return the outcomes, of which each rank has one: others of it become failures with a note.

    expected: the rank of which each outcome was to be, by what names and headers of the files say. An outcome of
    another rank gives way to one that was expected to be of that rank, else the first one stays.
    """
    pairs = list(zip(expected, outcomes, strict=True))
    as_expected = {rank for rank, outcome in pairs if isinstance(outcome, RankSummary) and outcome.rank == rank}
    kept: set[int] = set()
    result: list[RankSummary | RankFailure] = []
    for rank, outcome in pairs:
        if isinstance(outcome, RankFailure):
            result.append(outcome)
        elif outcome.rank in kept or (outcome.rank != rank and outcome.rank in as_expected):
            result.append(RankFailure(rank=rank, notes=(*outcome.notes, _duplicate_note(outcome))))
        else:
            kept.add(outcome.rank)
            result.append(outcome)
    return result


def without_files_of_no_rank(outcomes: Sequence[RankSummary | RankFailure]) -> list[RankSummary | RankFailure]:
    """Return the outcomes, of which those of no rank of the job become failures with a note.

    Nothing is known of such a file but a rank that the job does not have, such as of a merged trace or a launcher.
    """
    summaries = [outcome for outcome in outcomes if isinstance(outcome, RankSummary)]
    world_size = max((summary.world_size or 0 for summary in summaries if summary.is_measured), default=0)
    return [
        RankFailure(rank=outcome.rank, notes=(*outcome.notes, _no_rank_note(outcome, world_size)))
        if isinstance(outcome, RankSummary)
        and outcome.unmeasured is not None
        and outcome.world_size is None
        and 0 < world_size <= outcome.rank
        else outcome
        for outcome in outcomes
    ]


def _no_rank_note(summary: RankSummary, world_size: int) -> Note:
    file = summary.file_name
    text = f"rank {summary.rank}: {file}: the job has {world_size} ranks, and this file is of none of them; left out"
    return Note(id="no-rank", severity="warning", rank=summary.rank, file=file, text=text)


def _duplicate_note(summary: RankSummary) -> Note:
    file = summary.file_name
    text = f"rank {summary.rank}: {file}: another file is of rank {summary.rank} too; left out"
    return Note(id="duplicate-rank", severity="error", rank=summary.rank, file=file, text=text)


def missing_note(missing: Sequence[int], present: int, expected: int) -> list[Note]:
    if not missing:
        return []
    text = f"{present} of {expected} ranks; missing: {format_ranges(missing)}"
    return [Note(id="missing-rank", severity="warning", text=text)]


def step_notes(ranks: Sequence[RankSummary]) -> list[Note]:
    """Return a note if ranks completed different steps: comparisons over ranks leave out the others."""
    measured = [s for s in ranks if s.is_measured]
    complete = {s.rank: frozenset(step.step for step in s.steps if step.complete) for s in measured}
    if len(set(complete.values())) < 2:
        return []
    common_steps, all_steps = frozenset.intersection(*complete.values()), frozenset.union(*complete.values())
    incomplete_ranks = [rank for rank, steps in complete.items() if steps != all_steps]
    of_all = f"{len(common_steps)} of {len(all_steps)} steps are complete on all ranks"
    if len(incomplete_ranks) > 1:
        text = f"{of_all}; {ranks_text(incomplete_ranks)} lack some"
        return [Note(id="step-mismatch", severity="warning", text=text)]
    (rank,) = incomplete_ranks
    file = next(summary.file_name for summary in measured if summary.rank == rank)
    where = f"rank {rank}: {file}" if file else f"rank {rank}"
    text = f"{where}: it completed {len(complete[rank])} of the {len(all_steps)} steps; {of_all}, and are compared"
    return [Note(id="step-mismatch", severity="warning", rank=rank, file=file, text=text)]


def left_out_notes(left_out: Sequence[LeftOutStep], ranks: Sequence[RankSummary]) -> list[Note]:
    """Return a note about each step that is left out. It names the ranks where the step is long, if these are few."""
    most_ns = max((step.step_ns for summary in ranks for step in summary.steps if step.complete), default=0)
    first = "the first recorded" if len(left_out) == 1 else "the first of its window"
    notes = []
    for left in left_out:
        lengths_ns = {
            summary.rank: part.step_ns for summary in ranks for part in summary.left_out if part.step == left.step
        }
        slow = [summary for summary in ranks if lengths_ns.get(summary.rank, 0) > most_ns]
        few = 2 * len(slow) < len(lengths_ns)
        where = f" on {ranks_text([summary.rank for summary in slow])} ({slow[0].file_name})" if few and slow else ""
        text = (
            f"step {left.step}, {first}, took {left.step_ns / 1e6:,.1f} ms{where}, the others at most "
            f"{most_ns / 1e6:,.1f} ms: it is left out"
        )
        notes.append(Note(id="first-step", severity="info", text=text))
    return notes


def inferred_note(ranks: Sequence[RankSummary]) -> list[Note]:
    notes = []
    inferred = sorted({slug for summary in ranks if summary.strategies_inferred for slug in summary.strategies})
    if inferred:
        text = f"parallelism {', '.join(inferred)} inferred from names of events and what ranks communicate"
        notes.append(Note(id="inferred", severity="info", text=text))
    if any(summary.pipeline is not None and summary.pipeline.inferred for summary in ranks):
        text = "the pipeline's schedule, stages and ranks are inferred from the order of its actions"
        notes.append(Note(id="inferred", severity="info", text=text))
    return notes


def other_run_notes(discovery: Discovery) -> list[Note]:
    """Return a note for each run that is there and was not chosen. What a single file is of is said of the file."""
    notes = []
    for other in discovery.others:
        files = [window.path.name for windows in other.ranks.values() for window in windows]
        file = files[0] if len(files) == 1 else None
        what = file or f"{len(other.ranks)} ranks"
        option = "--attempt" if other.run_id == discovery.chosen.run_id else "--run"
        text = f"run {other.run_id}, attempt {other.attempt} ({what}) is there too; choose it with {option}"
        notes.append(Note(id="other-run", severity="info", file=file, text=text))
    return notes


def run_of_counted_steps(
    reader: RankReader,
    discovery: Discovery,
    outcomes: Sequence[RankSummary | RankFailure],
    options: SummaryOptions,
    *,
    leaves_out_first: bool,
) -> Run:
    """Return the run of the outcomes that `reader` has read, in its order. Raises what `assemble` does.

    Steps that no marks number get numbers that fit together, for which some ranks are read again.

    leaves_out_first: whether a first step that is longer than the others is left out.
    """
    guard = Guard()
    ranks = [outcome for outcome in outcomes if isinstance(outcome, RankSummary)]
    numbers: Mapping[int, int] = guard.run("which steps are the same", {}, first_steps, ranks)
    firsts = dict(zip(reader.ranks_of(discovery), (numbers.get(outcome.rank, 0) for outcome in outcomes), strict=True))
    again = [rank for rank, first in firsts.items() if first]
    outcomes = _read_again(reader, discovery, outcomes, replace(options, settled=leaves_out_first), again, firsts)
    outcomes = without_duplicates(reader.ranks_of(discovery), outcomes)
    outcomes = guard.run("which ranks serve others", outcomes, with_servers, outcomes)
    outcomes = guard.run("which ranks can be compared", outcomes, without_incomparable_times, outcomes)
    outcomes = without_files_of_no_rank(outcomes)
    while True:
        run, outcomes = _assembled(reader, discovery, outcomes, options, leaves_out_first=leaves_out_first)
        comparable = guard.run("which clocks can be compared", outcomes, without_jumping_clocks, outcomes, run.clocks)
        if all(one is other for one, other in zip(comparable, outcomes, strict=True)):
            return replace(run, notes=(*run.notes, *guard.notes))
        outcomes = comparable  # what is known of the others may depend on these ranks


def _read_again(
    reader: RankReader,
    discovery: Discovery,
    outcomes: Sequence[RankSummary | RankFailure],
    options: SummaryOptions,
    again: Collection[int],
    firsts: Mapping[int, int],
) -> list[RankSummary | RankFailure]:
    """Return the outcomes, of which some ranks are read again. firsts: the numbers of their first steps."""
    of_rank = dict(zip(reader.ranks_of(discovery), outcomes, strict=True))
    if again:
        of_rank |= zip(again, reader.read(discovery, options, again, firsts), strict=True)
    return list(of_rank.values())


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
    numbers = tuple(sorted(step.step for step in left_out))
    of_rank = dict(zip(reader.ranks_of(discovery), outcomes, strict=True))
    again = [rank for rank, outcome in of_rank.items() if _leaves_out_others(outcome, numbers)]
    firsts = {rank: outcome.first_step for rank, outcome in of_rank.items() if isinstance(outcome, RankSummary)}
    outcomes = _read_again(reader, discovery, outcomes, replace(options, without=numbers), again, firsts)
    return assemble(reader.paths, discovery, outcomes, reader.selected, left_out, guard), outcomes


def _leaves_out_others(outcome: RankSummary | RankFailure, numbers: Collection[int]) -> bool:
    """Return whether a rank has left out other steps than those of these numbers."""
    if isinstance(outcome, RankFailure) or not outcome.is_measured:
        return False
    return {step.step for step in outcome.left_out} != set(numbers).intersection(outcome.recorded_steps)


@dataclass(frozen=True, kw_only=True)
class RunPaths:
    """Which run is meant, as for `load`."""

    paths: Sequence[str]
    run: str | None = None
    attempt: int | None = None
    ranks_from: str | None = None


def pseudonyms_of(
    runs: Iterable[RunPaths],
    *,
    jobs: int | None = 1,
    progress: Progress | None = None,
) -> Pseudonyms:
    """Return pseudonyms for all names in some runs. Raises what `discover` raises."""
    collector = NameCollector()
    runs = list(runs)
    calls = []
    for chosen in runs:
        found = _discover(chosen)
        calls += [(tuple(window.path.absolute() for window in files),) for files in found.chosen.ranks.values()]
        for note in found.notes:
            collector.name("file", note.file or "")
        for each in (found.chosen, *found.others):
            anonymous_run_id(each.run_id or "", collector)
        for file in found.progress:
            anonymous_progress(file, collector)
    names: dict[KindOfName, set[str]] = defaultdict(set, collector.names)
    for of_rank in map_ranks(names_in_files, calls, jobs=jobs, progress=progress):
        if of_rank is not LOST:  # loading the rank will say so
            for kind, found_names in of_rank.items():
                names[kind] |= found_names
    return Pseudonyms.of_names(names, [chosen.paths for chosen in runs])


def _discover(chosen: RunPaths) -> Discovery:
    """Return what `discover` does. If no run has the wanted id, the error does not list the ids that there are."""
    try:
        return discover(chosen.paths, run=chosen.run, attempt=chosen.attempt, ranks_from=chosen.ranks_from)
    except UsageError as error:
        raise UsageError(error.message, hint="tracekit info without --anonymize shows the ids of runs") from None


def anonymous_run(run: Run, pseudonyms: Pseudonyms) -> Run:
    """Return a run whose traces were read with pseudonyms, with pseudonyms for everything else that is known of it.

    Only `files` of the ranks are as they are, to be read again.
    """
    progress: list[ProgressFile] = [anonymous_progress(file, pseudonyms) for file in run.progress]
    others = (
        replace(other, run_id=None if other.run_id is None else anonymous_run_id(other.run_id, pseudonyms))
        for other in run.other_runs
    )
    return replace(
        run,
        paths=tuple(pseudonyms.name("run", path) for path in run.paths),
        run_id=None if run.run_id is None else anonymous_run_id(run.run_id, pseudonyms),
        ranks=tuple(replace(rank, notes=tuple(map(pseudonyms.note, rank.notes))) for rank in run.ranks),
        other_runs=tuple(others),
        notes=tuple(map(pseudonyms.note, run.notes)),
        progress=tuple(progress),
        pseudonyms=pseudonyms,
    )


def names_in_files(paths: Sequence[TracePath]) -> Mapping[KindOfName, frozenset[str]]:
    """Return the names in these files, by kind. A file that cannot be used has none: reading it again says why."""
    collector = NameCollector()
    for path in paths:
        collector.name("file", path.name)
        try:
            decode(path, extra_args=True, namer=collector)
        except Exception:  # noqa: S112
            continue
    return {kind: frozenset(names) for kind, names in collector.names.items()}
