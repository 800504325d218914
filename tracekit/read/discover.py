"""Paths, folders and globs to the trace files of one run.

Comes in: what the user typed. Goes out: a `Discovery`: the files of the chosen run by rank, the other runs that were
there, and a note for every file that is not used. Nothing is decoded here. Captures of tracekit are grouped by run and
attempt; traces of other tools by world size, time and unique ranks: a rank that appears again in another process begins
another run, in the same process another window of the same run.
"""

from __future__ import annotations

import glob
import os
import stat
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from tracekit.errors import InputError, UsageError
from tracekit.model.notes import Note
from tracekit.read.peek import MANIFEST_SUFFIX, TraceFile, from_manifest, peek, readable_reason

__all__ = ["Discovery", "RunFiles", "discover"]

_TRACE_SUFFIXES = (".json", ".json.gz", ".json.zst", ".json.tmp", ".gz.tmp")
_LISTED_IGNORED = 8


@dataclass(frozen=True, kw_only=True)
class RunFiles:
    """The trace files of one attempt of one run. `ranks` maps a rank to its windows, in order of time."""

    run_id: str | None
    attempt: int
    world_size: int | None
    ranks: dict[int, tuple[TraceFile, ...]]
    start_ns: int | None


@dataclass(frozen=True, kw_only=True)
class Discovery:
    chosen: RunFiles
    others: tuple[RunFiles, ...] = ()
    notes: tuple[Note, ...] = ()


@dataclass
class _Found:
    files: list[TraceFile] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)


def discover(paths: Sequence[str], *, run: str | None = None, attempt: int | None = None) -> Discovery:
    """Find the newest run below `paths` (or the one that `run` and `attempt` name).

    Raises InputError when a path does not exist or nothing below it is a trace, UsageError when no run has that name.
    """
    found = _Found()
    for typed in paths:
        _collect(typed, found)
    if not found.files:
        raise _nothing_found(paths, found.notes)
    runs = sorted(_group(found), key=lambda r: (r.start_ns or 0, r.run_id or "", r.attempt))
    wanted = [r for r in runs if (run is None or r.run_id == run) and (attempt is None or r.attempt == attempt)]
    if not wanted:
        names = ", ".join(sorted({f"{r.run_id} (attempt {r.attempt})" for r in runs}))
        raise UsageError(
            f"no run {run or ''} attempt {attempt if attempt is not None else 'any'}", hint=f"there is {names}"
        )
    chosen = wanted[-1]
    return Discovery(chosen=chosen, others=tuple(r for r in runs if r is not chosen), notes=tuple(found.notes))


def _collect(typed: str, found: _Found) -> None:
    path = Path(typed)
    if path.is_dir():
        manifests: dict[Path, TraceFile] = {}
        candidates = []
        for file in _walk(path):
            if file.name.endswith(MANIFEST_SUFFIX):
                if trace := from_manifest(file):
                    manifests[trace.path] = trace
            else:
                candidates.append(file)
        known = {file: manifests.get(file) for file in candidates}
    elif os.path.lexists(path):
        known = {path: None}
    else:
        matches = sorted(glob.glob(typed, recursive=True))  # noqa: PTH207 - the pattern may be absolute
        if not matches:
            what = "no file matches" if glob.has_magic(typed) else "no such file or folder"
            raise InputError(f"{typed}: {what}", hint="give a run folder, a trace file or a glob in quotes")
        for match in matches:
            _collect(match, found)
        return
    seen = {_identity(file.path) for file in found.files}
    for file, trace in known.items():
        reason = _why_unusable(file)
        if reason is None and _identity(file) not in seen:
            seen.add(_identity(file))
            try:
                found.files.append(trace or peek(file))
            except InputError as error:
                reason = readable_reason(error)
        if reason is not None:
            kind = "permission" if "readable" in reason else "empty" if "empty" in reason else "ignored_file"
            text = f"{file.name}: {reason}; left out"
            found.notes.append(Note(kind=kind, severity="warning", file=file.name, text=text))


def _walk(folder: Path) -> Iterator[Path]:
    """Files that may be traces, sorted; links to folders are not followed, so that no loop can catch us."""
    for parent, folders, files in os.walk(folder, followlinks=False):
        folders.sort()
        for name in sorted(files):
            if name.endswith(_TRACE_SUFFIXES) or (name.startswith(".rank-") and name.endswith(".tmp")):
                yield Path(parent) / name


def _why_unusable(path: Path) -> str | None:
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return "a link to nothing"
    except OSError as error:
        return error.strerror or str(error)
    return None if stat.S_ISREG(mode) else "not a regular file"


def _identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


def _nothing_found(paths: Sequence[str], notes: Iterable[Note]) -> InputError:
    reasons = [note.text.removesuffix("; left out") for note in notes]
    typed = " ".join(paths)
    if len(reasons) == 1 and not Path(typed).is_dir():
        reason = reasons[0].partition(": ")[2]
        return InputError(f"{typed}: {reason}", hint="give Chrome-trace JSON files of torch.profiler")
    shown = "; ".join(reasons[:_LISTED_IGNORED]) + (
        f"; and {len(reasons) - _LISTED_IGNORED} more" * (len(reasons) > _LISTED_IGNORED)
    )
    message = f"{typed}: no trace in it" + (f" ({shown})" if shown else "")
    return InputError(message, hint="record one with @tracekit.probe, or see tracekit demo")


def _group(found: _Found) -> list[RunFiles]:
    captured: dict[tuple[str, int], list[TraceFile]] = defaultdict(list)
    foreign: dict[int | None, list[TraceFile]] = defaultdict(list)
    for file in found.files:
        if file.run_id is not None:
            captured[file.run_id, file.attempt].append(file)
        else:
            foreign[file.world_size].append(file)
    runs = [_run(files, run_id, attempt, found.notes) for (run_id, attempt), files in captured.items()]
    unsized = foreign.pop(None, [])
    if len(foreign) == 1 or not foreign:  # what does not say its world size may be one of the others
        foreign.setdefault(next(iter(foreign), None), []).extend(unsized)
    else:
        foreign[None] = unsized
    for files in filter(None, foreign.values()):
        runs += [_run(job, None, 0, found.notes) for job in _jobs(_with_ranks(files, found.notes))]
    return _with_names(runs)


def _with_ranks(files: list[TraceFile], notes: list[Note]) -> list[TraceFile]:
    """Give processes that do not say their rank the free ranks in order of name: never two ranks 0 by default."""
    taken = {file.rank for file in files}
    free = (rank for rank in range(len(files) + len(taken)) if rank not in taken)
    rank_of_process: dict[object, int] = {}
    ranked = []
    for file in sorted(files, key=lambda f: f.path.name):
        if file.rank is None:
            process = _process(file)
            if process not in rank_of_process:
                rank_of_process[process] = next(free)
            rank = rank_of_process[process]
            ranked.append(replace(file, rank=rank))
            if len(files) > 1:
                text = f"rank {rank}: {file.path.name}: says no rank, neither inside nor in its name; numbered by name"
                notes.append(Note(kind="no_rank", severity="warning", rank=rank, file=file.path.name, text=text))
        else:
            ranked.append(file)
    return ranked


def _process(file: TraceFile) -> object:
    """Equal for windows of one process: `host_pid.<time>.pt.trace.json` of tensorboard_trace_handler, in one folder."""
    if file.process is None:
        return file.path
    return file.path.parent, file.path.name.partition(".")[0], file.process


def _jobs(files: list[TraceFile]) -> list[list[TraceFile]]:
    """Split the traces of other tools into jobs: a rank seen again in another process belongs to a later job."""
    jobs: list[list[TraceFile]] = []
    for file in sorted(files, key=lambda f: (f.start_ns or 0, f.path.name)):
        for job in reversed(jobs):
            twins = [other for other in job if other.rank == file.rank]
            if not twins or all(twin.process == file.process for twin in twins):
                job.append(file)
                break
        else:
            jobs.append([file])
    return jobs


def _run(files: list[TraceFile], run_id: str | None, attempt: int, notes: list[Note]) -> RunFiles:
    by_rank: dict[int, dict[object, TraceFile]] = defaultdict(dict)
    for file in sorted(files, key=lambda f: (not f.unfinished, f.path.stat().st_mtime_ns)):
        assert file.rank is not None
        windows = by_rank[file.rank]
        window = file.first_step if file.first_step is not None else file.start_ns
        replaced = windows.get(window)
        windows[window] = file
        if replaced is not None:
            kind = "unfinished_tmp" if replaced.unfinished else "duplicate_rank"
            text = f"rank {file.rank}: {replaced.path.name}: an older file of the same window; {file.path.name} is used"
            notes.append(Note(kind=kind, severity="info", rank=file.rank, file=replaced.path.name, text=text))
    ranks = {
        rank: tuple(sorted(windows.values(), key=lambda f: (f.first_step or 0, f.start_ns or 0)))
        for rank, windows in sorted(by_rank.items())
    }
    known = [file for file in files if file.world_size is not None]
    world_size = known[0].world_size if known else None
    notes += [_unfinished(file) for files_of_rank in ranks.values() for file in files_of_rank if file.unfinished]
    return RunFiles(run_id=run_id, attempt=attempt, world_size=world_size, ranks=ranks, start_ns=_start_ns(ranks))


def _start_ns(ranks: dict[int, tuple[TraceFile, ...]]) -> int | None:
    """When the first rank that tells it began: manifests do not."""
    for windows in ranks.values():
        try:
            start_ns = windows[0].start_ns if windows[0].start_ns is not None else peek(windows[0].path).start_ns
        except InputError:
            continue
        if start_ns is not None:
            return start_ns
    return None


def _unfinished(file: TraceFile) -> Note:
    text = f"rank {file.rank}: {file.path.name}: the job died while it wrote this file; what is in it is used"
    return Note(kind="unfinished_tmp", severity="warning", rank=file.rank, file=file.path.name, text=text)


def _with_names(runs: list[RunFiles]) -> list[RunFiles]:
    """Runs of other tools get a name from their start, so that `--run` can choose them."""
    if sum(r.run_id is None for r in runs) < 2 and len(runs) == 1:
        return runs
    named = []
    for run in runs:
        if run.run_id is None:
            when = datetime.fromtimestamp((run.start_ns or 0) / 1e9, UTC)
            run = replace(run, run_id=f"{when:%Y%m%dT%H%M%SZ}-world{run.world_size or len(run.ranks)}")
        named.append(run)
    return named
