"""Which trace files are one run.

Captures of tracekit name their run and attempt. Traces of other tools are grouped by world size, and then into jobs by
`foreign_jobs`. A trace without a world size joins the others only when these have one world size.
"""

from __future__ import annotations

import filecmp
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from tracekit.errors import InputError
from tracekit.model.notes import Note
from tracekit.read.files.foreign_jobs import group_into_jobs, started_far_apart
from tracekit.read.files.identify import EARLIEST_WALL_CLOCK_NS, TraceFile, identify
from tracekit.read.files.ranks import rank_in_name, with_global_ranks, with_ranks
from tracekit.read.files.storage import version_of


@dataclass(frozen=True, kw_only=True)
class RunFiles:
    """The trace files of one attempt of one run.

    Attributes:
        run_id: None if neither the files nor tracekit name the run.
        attempt: Counts from 0.
        world_size: None if no file says it.
        ranks: The files of each rank, in order of time; of a window there may be several, which differ.
        start_ns: When the first window began, None if no file says it.
        notes: About the files.
    """

    run_id: str | None
    attempt: int
    world_size: int | None
    ranks: dict[int, tuple[TraceFile, ...]]
    start_ns: int | None
    notes: tuple[Note, ...] = ()


def group_into_runs(files: Sequence[TraceFile]) -> list[RunFiles]:
    """Return all runs, from the oldest to the newest; first those that are parts of a job or attempt."""
    captured: dict[tuple[str, int], list[TraceFile]] = defaultdict(list)
    foreign: dict[int | None, list[TraceFile]] = defaultdict(list)
    for file in with_global_ranks(files):
        if file.run_id is not None:
            captured[file.run_id, file.attempt].append(file)
        else:
            foreign[file.world_size].append(file)
    runs = [_run(members, run_id, attempt) for (run_id, attempt), members in captured.items()]
    unsized = foreign.pop(None, [])
    if len(foreign) <= 1:
        foreign[next(iter(foreign), None)] += unsized
    else:
        foreign[None] = unsized
    jobs_of_world = {
        world_size: [_foreign_run(job) for job in group_into_jobs(members)] for world_size, members in foreign.items()
    }
    every = [job for jobs in jobs_of_world.values() for job in jobs]
    remnants: list[RunFiles] = []
    for world_size, jobs in jobs_of_world.items():
        others = every if world_size is None else jobs  # a file that says no size may be of a job of any
        fewest = min((len(job.ranks) for job in jobs), default=0)
        fuller = [job for job in others if len(job.ranks) > 2 * fewest]  # no job is a remnant beside others
        for job in jobs:
            (remnants if any(_is_remnant(job, other) for other in fuller) else runs).append(job)
    return _with_names([*sorted(remnants, key=_run_order), *sorted(runs, key=_run_order)])


def _is_remnant(run: RunFiles, other: RunFiles) -> bool:
    """Return whether `run` is but a part of `other` or of an attempt beside it, and so no newer job.

    Both are of the same world if both say one. `run` has less than half as many ranks as `other`. Either it began
    within ten minutes of it, or `other` lacks its ranks: then they are of that job, and have a wrong clock.
    """
    if 2 * len(run.ranks) >= len(other.ranks):
        return False
    if all(_lacks(other, rank) for rank in run.ranks):
        return True
    if run.start_ns is None or other.start_ns is None:
        return False
    return not started_far_apart([run.start_ns, other.start_ns])


def _lacks(run: RunFiles, rank: int) -> bool:
    return rank not in run.ranks and (run.world_size is None or rank < run.world_size)


def _run_order(run: RunFiles) -> tuple[int, int, str, int, str]:
    """Of runs that began together the one with more ranks is the newer: a single damaged file may seem a run."""
    first = next(iter(run.ranks.values()))[0]
    return run.start_ns or 0, len(run.ranks), run.run_id or "", run.attempt, str(first.path)


def _foreign_run(job: Sequence[TraceFile]) -> RunFiles:
    """Return the run of one job of another tool, with notes about ranks that are guessed and files of no rank."""
    files, apart = with_ranks(job)
    run = _run(files)
    notes = []
    if apart:
        count = f"{apart[0].path.name}" + f" and {len(apart) - 1} more" * (len(apart) > 1)
        text = f"{count}: no rank, collective or device event, as of a launcher beside the ranks; left out"
        notes.append(Note(id="no-rank", severity="warning", file=apart[0].path.name, text=text))
    guessed = [file for file in files if file.rank_from == "nothing"]
    world_size = max((file.known_world_size for file in files), default=0)
    if guessed and max(len(run.ranks), world_size) > 1:
        name, rank = guessed[0].path.name, guessed[0].rank
        count = f"{len(guessed)} of {len(files)} files are numbered by name"
        text = f"{count}; --ranks-from REGEX names their ranks otherwise ({name} is rank {rank})"
        notes.append(Note(id="no-rank", severity="warning", file=name, text=text))
    return replace(run, world_size=world_size or None, notes=(*notes, *run.notes))


def _run(files: Sequence[TraceFile], run_id: str | None = None, attempt: int = 0) -> RunFiles:
    notes: list[Note] = []
    by_rank: dict[int, dict[object, list[TraceFile]]] = defaultdict(lambda: defaultdict(list))
    for file in sorted(files, key=_precedence):
        assert file.rank is not None
        by_rank[file.rank][_window_key(file)].append(file)
    ranks: dict[int, tuple[TraceFile, ...]] = {}
    for rank, windows in sorted(by_rank.items()):
        used = []
        for *others, best in windows.values():
            replaced = [file for file in others if _gives_way(file, best)]
            used += [file for file in (*others, best) if file not in replaced]
            notes += [_replaced(file, best) for file in replaced]
        ranks[rank] = tuple(sorted(used, key=lambda f: (f.first_step or 0, f.start_ns or 0, f.path.name)))
    notes += [_unfinished(file) for windows in ranks.values() for file in windows if file.unfinished]
    return RunFiles(
        run_id=run_id,
        attempt=attempt,
        world_size=next((file.world_size for file in files if file.world_size is not None), None),
        ranks=ranks,
        start_ns=_start_ns(ranks),
        notes=tuple(notes),
    )


def _precedence(file: TraceFile) -> tuple[bool, bool, int, str]:
    """Return what decides between files of one window: no `.tmp`, not named after another rank, newer."""
    is_named_so = rank_in_name(file.path) in (None, file.rank)
    return not file.unfinished, is_named_so, version_of(file.path).changed_ns or 0, str(file.path)


def _gives_way(file: TraceFile, to: TraceFile) -> bool:
    """Return whether a file of a window need not be read beside another one of greater or equal precedence.

    Of the others decoding shows which one counts (`analysis.per_rank.merge`).
    """
    if _precedence(file)[:2] < _precedence(to)[:2]:
        return True
    try:
        is_on_disk = isinstance(file.path, Path) and isinstance(to.path, Path)
        return is_on_disk and filecmp.cmp(str(file.path), str(to.path), shallow=False)
    except OSError:  # one of them cannot be read
        return False


def _replaced(file: TraceFile, by: TraceFile) -> Note:
    kind = "unfinished-tmp" if file.unfinished else "duplicate-rank"
    text = f"rank {file.rank}: {file.path.name}: another file of the same window; {by.path.name} is used"
    return Note(id=kind, severity="info", rank=file.rank, file=file.path.name, text=text)


def _window_key(file: TraceFile) -> object:
    """Return a key that is equal for two files of the same window. A file without a time is a window by itself."""
    if file.first_step is not None:
        return file.first_step
    return file.path if file.start_ns is None else ("start", file.start_ns)


def _start_ns(ranks: dict[int, tuple[TraceFile, ...]]) -> int | None:
    """Return when the first rank began of which that is known: manifests do not say it."""
    for windows in ranks.values():
        try:
            start_ns = _known_start_ns(windows[0])
        except InputError:
            continue
        if start_ns is not None:
            return start_ns
    return None


def _known_start_ns(file: TraceFile) -> int | None:
    if file.start_ns is not None or file.relative_start_ns is not None:
        return file.start_ns
    return identify(file.path).start_ns


def _unfinished(file: TraceFile) -> Note:
    text = f"rank {file.rank}: {file.path.name}: the job died while it wrote this file; what is in it is used"
    return Note(id="unfinished-tmp", severity="warning", rank=file.rank, file=file.path.name, text=text)


def _with_names(runs: list[RunFiles]) -> list[RunFiles]:
    """Name the runs of other tools by their start, so that `--run` can choose them. A single run needs no name."""
    if len(runs) == 1:
        return runs
    named = []
    times_used: dict[str, int] = defaultdict(int)
    for run in runs:
        if run.run_id is None:
            name = f"{_when(run.start_ns)}-world{run.world_size or len(run.ranks)}"
            times_used[name] += 1
            run = replace(run, run_id=name if times_used[name] == 1 else f"{name}-{times_used[name]}")
        named.append(run)
    return named


def _when(start_ns: int | None) -> str:
    if start_ns is None or start_ns < EARLIEST_WALL_CLOCK_NS:
        return "unknown-start"
    return f"{datetime.fromtimestamp(start_ns / 1e9, UTC):%Y%m%dT%H%M%SZ}"
