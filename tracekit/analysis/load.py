"""Paths to a `Run`: find the files, summarise each rank in a worker, assemble the ranks.

Comes in: what the user typed. Goes out: a `Run`. A rank that cannot be used is a note and a missing rank, never the end
of the others.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import TypeVar

from tracekit.analysis.align import align
from tracekit.analysis.summarize import RankFailure, SummaryOptions, summarize
from tracekit.errors import InputError
from tracekit.model.communication import GroupKey
from tracekit.model.notes import Note
from tracekit.model.ranks import format_ranges
from tracekit.model.run import OtherRun, Run
from tracekit.model.summary import RankSummary
from tracekit.read.discover import Discovery, discover

__all__ = ["Paths", "Progress", "load", "map_ranks"]

Progress = Callable[[int, int], None]
"""Called with (ranks done, ranks in all)."""

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
"""A folder, a glob, a file, or several of them."""

T = TypeVar("T")

_SMALL_RUN_BYTES = 4 << 20  # packed; below this, starting workers costs more than they save


def load(
    paths: Paths,
    *,
    run: str | None = None,
    attempt: int | None = None,
    ranks: Iterable[int] | None = None,
    options: SummaryOptions | None = None,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> Run:
    """Read the newest run below `paths` (or `run`, `attempt`), one worker process a rank, `jobs` at a time.

    Raises InputError when there is no usable trace, or `ranks` or the options' steps select none of what is there,
    UsageError when there is no such `run` or `attempt`.
    """
    typed = [os.fspath(paths)] if isinstance(paths, str | os.PathLike) else [os.fspath(path) for path in paths]
    found = discover(typed, run=run, attempt=attempt)
    selected = None if ranks is None else frozenset(ranks)
    files = {
        rank: tuple(window.path for window in windows)
        for rank, windows in found.chosen.ranks.items()
        if selected is None or rank in selected
    }
    if not files:
        there = format_ranges(found.chosen.ranks)
        raise InputError(f"{' '.join(typed)}: none of the selected ranks is there", hint=f"there are ranks {there}")
    chosen = options or SummaryOptions()
    calls = [(rank, windows, chosen) for rank, windows in files.items()]
    size = sum(path.stat().st_size for windows in files.values() for path in windows)
    outcomes = map_ranks(
        summarize, calls, jobs=1 if jobs is None and size < _SMALL_RUN_BYTES else jobs, progress=progress
    )
    return assemble(typed, found, outcomes, selected)


def map_ranks(
    work: Callable[..., T],
    calls: Sequence[tuple[object, ...]],
    *,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> list[T]:
    """`[work(*call) for call in calls]` in worker processes, `jobs` at a time (default: the processors there are).

    A pool that breaks is replaced by this process for the calls that had no result.
    """
    workers = min(jobs or os.cpu_count() or 1, len(calls))
    results: dict[int, T] = {}
    if workers > 1:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(workers, mp_context=context) as pool:
            _collect(pool, work, calls, results, progress)
    for position, call in enumerate(calls):
        if position not in results:
            results[position] = work(*call)
            if progress is not None:
                progress(len(results), len(calls))
    return [results[position] for position in range(len(calls))]


def _collect(
    pool: Executor,
    work: Callable[..., T],
    calls: Sequence[tuple[object, ...]],
    results: dict[int, T],
    progress: Progress | None,
) -> None:
    waiting = {pool.submit(work, *call): position for position, call in enumerate(calls)}
    for future in as_completed(waiting):
        try:
            results[waiting[future]] = future.result()
        except BrokenProcessPool:
            return
        if progress is not None:
            progress(len(results), len(calls))


def assemble(
    paths: Sequence[str],
    found: Discovery,
    outcomes: Sequence[RankSummary | RankFailure],
    selected: frozenset[int] | None,
) -> Run:
    """Ranks to a run. Raises InputError when no rank could be used."""
    notes = list(found.notes)
    by_rank: dict[int, RankSummary] = {}
    for outcome in outcomes:
        notes += outcome.notes
        if isinstance(outcome, RankFailure):
            continue
        if outcome.rank in by_rank:
            file = Path(outcome.files[0]).name
            text = f"rank {outcome.rank}: {file}: another file says it is rank {outcome.rank}; left out"
            notes.append(Note(kind="duplicate_rank", severity="error", rank=outcome.rank, file=file, text=text))
            continue
        by_rank[outcome.rank] = outcome
    if not by_rank:
        reasons = "; ".join(note.text for note in notes if note.severity == "error")
        raise InputError(
            f"{' '.join(paths)}: no trace in it can be used ({reasons})", hint="record or copy the traces again"
        )
    ranks = tuple(by_rank[rank] for rank in sorted(by_rank))
    if not any(summary.steps for summary in ranks):
        there = format_ranges({step for summary in ranks for step in summary.recorded_steps})
        raise InputError(f"{' '.join(paths)}: none of the selected steps is there", hint=f"recorded steps: {there}")
    world_size = max((s.world_size for s in ranks if s.world_size is not None), default=None)
    expected = set(range(world_size or 0)) if selected is None else set(selected) & set(range(world_size or 0))
    missing = tuple(sorted(expected - by_rank.keys()))
    notes += _missing_note(missing, len(ranks), len(expected))
    notes += _step_notes(ranks)
    notes += _inferred_note(ranks)
    groups: dict[GroupKey, int] = {}
    for summary in ranks:
        for group in summary.groups:
            groups.setdefault(group, len(groups))
    others = tuple(
        OtherRun(run_id=r.run_id, attempt=r.attempt, ranks=len(r.ranks), start_ns=r.start_ns) for r in found.others
    )
    for other in others:
        text = f"run {other.run_id} (attempt {other.attempt}, {other.ranks} ranks) is there too; choose it with --run"
        notes.append(Note(kind="other_run", severity="info", text=text))
    return Run(
        paths=tuple(paths),
        run_id=found.chosen.run_id,
        attempt=found.chosen.attempt,
        world_size=world_size,
        ranks=ranks,
        missing_ranks=missing,
        selected_ranks=None if selected is None else tuple(sorted(selected)),
        groups=tuple(sorted(groups)),
        clocks=align(ranks),
        other_runs=others,
        notes=tuple(notes),
    )


def _missing_note(missing: Sequence[int], present: int, expected: int) -> list[Note]:
    if not missing:
        return []
    text = f"{present} of {expected} ranks; missing: {format_ranges(missing)}"
    return [Note(kind="missing_rank", severity="warning", text=text)]


def _step_notes(ranks: Sequence[RankSummary]) -> list[Note]:
    """Ranks whose complete steps differ: what is compared over ranks leaves the others out."""
    complete = {s.rank: frozenset(step.step for step in s.steps if step.complete) for s in ranks}
    if len(set(complete.values())) < 2:
        return []
    common = frozenset.intersection(*complete.values())
    odd = [rank for rank, steps in complete.items() if steps != common]
    text = f"{len(common)} steps are complete on all ranks; ranks {format_ranges(odd)} have others as well"
    return [Note(kind="step_mismatch", severity="warning", text=text)]


def _inferred_note(ranks: Sequence[RankSummary]) -> list[Note]:
    inferred = sorted({slug for summary in ranks if summary.strategies_inferred for slug in summary.strategies})
    if not inferred:
        return []
    text = f"parallelism {', '.join(inferred)} inferred from the names of events"
    return [Note(kind="inferred", severity="info", text=text)]
