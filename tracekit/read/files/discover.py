"""Paths, folders and globs to the trace files of one run.

Comes in: what the user typed. Goes out: a `Discovery`: the files of the chosen run by rank, the other runs that were
there, and a note for every file that is not used. Nothing is decoded here; `grouping` says which files are one run.
"""

from __future__ import annotations

import glob
import os
import stat
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import TypeVar

from tracekit.errors import InputError, UsageError
from tracekit.model.notes import Note
from tracekit.read.cache.store import CACHE_FOLDER
from tracekit.read.files.grouping import RunFiles, group_into_runs, is_plainly_one_run
from tracekit.read.files.identify import MANIFEST_SUFFIX, TraceFile, from_manifest, glance, peek
from tracekit.read.files.storage import RemotePath, TracePath, find_remote, located

__all__ = ["Discovery", "RunFiles", "discover"]

_TRACE_SUFFIXES = (".json", ".json.gz", ".json.zst", ".json.tmp", ".gz.tmp")
_LISTED_IGNORED = 8
_REQUESTS_AT_A_TIME = 32

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Discovery:
    """`notes`: about the chosen run's files, and about files of no run. `glanced`: that the files are of one
    run rests on their beginnings.
    """

    chosen: RunFiles
    others: tuple[RunFiles, ...] = ()
    notes: tuple[Note, ...] = ()
    glanced: bool = False


@dataclass(frozen=True, kw_only=True)
class _Ignored:
    path: TracePath
    kind: str
    reason: str
    hint: str

    def note(self) -> Note:
        name = self.path.name
        return Note(kind=self.kind, severity="warning", file=name, text=f"{name}: {self.reason}; left out")


@dataclass
class _Found:
    look: Callable[[TracePath], TraceFile]
    files: list[TraceFile] = field(default_factory=list)
    ignored: list[_Ignored] = field(default_factory=list)
    seen: set[object] = field(default_factory=set)  # what tells files apart, whatever their names


def discover(
    paths: Sequence[str],
    *,
    run: str | None = None,
    attempt: int | None = None,
    look: Callable[[TracePath], TraceFile] = glance,
) -> Discovery:
    """Find the newest run below `paths` (or the one that `run` and `attempt` name). `look`: `glance`, or `peek` to be
    sure which files belong together.

    Raises InputError when a path does not exist or nothing below it is a trace, UsageError when no run has that name.
    """
    found = _Found(look=look)
    for typed in paths:
        _collect(typed, found)
    if not is_plainly_one_run(found.files):
        _look_at_ends(found)
    if not found.files:
        raise _nothing_found(paths, found.ignored)
    runs, notes = _with_ignored(group_into_runs(found.files), found.ignored)
    wanted = [r for r in runs if (run is None or r.run_id == run) and (attempt is None or r.attempt == attempt)]
    if not wanted:
        names = ", ".join(sorted({f"{r.run_id} (attempt {r.attempt})" for r in runs}))
        asked = " and ".join([f"--run {run}"] * (run is not None) + [f"--attempt {attempt}"] * (attempt is not None))
        raise UsageError(f"{asked}: no such run in {' '.join(paths)}", hint=f"there is {names}")
    chosen = wanted[-1]
    others = tuple(r for r in runs if r is not chosen)
    glanced = any(file.ticks_ns is not None for file in found.files)
    return Discovery(chosen=chosen, others=others, notes=(*notes, *chosen.notes), glanced=glanced)


def _with_ignored(runs: Sequence[RunFiles], ignored: Iterable[_Ignored]) -> tuple[list[RunFiles], list[Note]]:
    """The runs with the notes about unusable files that lie in their folders, and the notes that are left."""
    runs_in: dict[PurePath, set[int]] = defaultdict(set)
    for place, run in enumerate(runs):
        for folder in {folder for windows in run.ranks.values() for file in windows for folder in file.path.parents}:
            runs_in[folder].add(place)
    notes_of: dict[int, list[Note]] = defaultdict(list)
    left: list[Note] = []
    for entry in ignored:
        owners = next((runs_in[folder] for folder in entry.path.parents if folder in runs_in), set())
        (notes_of[next(iter(owners))] if len(owners) == 1 else left).append(entry.note())
    return [replace(run, notes=(*notes_of[place], *run.notes)) for place, run in enumerate(runs)], left


def _collect(typed: str, found: _Found) -> None:
    place = located(typed)
    if isinstance(place, RemotePath):
        files = find_remote(place)
        if not files:
            raise _no_such(typed)
        if files == [place]:
            _add(files, (), found)
        else:
            _add_all([file for file in files if _may_be_trace(file.name)], found)
    elif place.is_dir():
        _add_all(list(_walk(place, found)), found)
    elif os.path.lexists(place):
        _add([place], (), found)
    else:
        matches = sorted(glob.glob(str(place), recursive=True))  # noqa: PTH207 - the pattern may be absolute
        if not matches:
            raise _no_such(typed)
        for match in matches:
            _collect(match, found)


def _no_such(typed: str) -> InputError:
    what = "no file matches" if glob.has_magic(typed) else "no such file or folder"
    return InputError(f"{typed}: {what}", hint="give a run folder, a trace file or a glob in quotes")


def _add_all(files: Sequence[TracePath], found: _Found) -> None:
    """Files of one place, manifests among them."""
    manifests = [file for file in files if file.name.endswith(MANIFEST_SUFFIX)]
    _add([file for file in files if not file.name.endswith(MANIFEST_SUFFIX)], manifests, found)


def _add(files: Iterable[TracePath], manifests: Sequence[TracePath], found: _Found) -> None:
    vouched_for = {trace.path: trace for trace in _read_each(from_manifest, manifests) if trace is not None}
    new: list[TracePath] = []
    for file in files:
        try:
            identity = _identity(file)
        except InputError as error:
            found.ignored.append(_Ignored(path=file, kind=error.kind, reason=error.reason, hint=error.hint))
            continue
        if identity not in found.seen:
            found.seen.add(identity)
            new.append(file)
    _take(found, _read_each(lambda file: vouched_for.get(file) or _read(found.look, file), new))


def _look_at_ends(found: _Found) -> None:
    """Of files whose beginning does not say when they were recorded."""
    known = [file for file in found.files if file.ticks_ns is None]
    others = [file.path for file in found.files if file.ticks_ns is not None]
    found.files = known
    _take(found, _read_each(lambda file: _read(peek, file), others))


def _take(found: _Found, traces: Iterable[TraceFile | _Ignored]) -> None:
    for trace in traces:
        if isinstance(trace, TraceFile):
            found.files.append(trace)
        else:
            found.ignored.append(trace)


def _read(look: Callable[[TracePath], TraceFile], file: TracePath) -> TraceFile | _Ignored:
    try:
        return look(file)
    except InputError as error:
        return _Ignored(path=file, kind=error.kind, reason=error.reason, hint=error.hint)


def _read_each(read: Callable[[TracePath], T], files: Sequence[TracePath]) -> list[T]:
    if not any(isinstance(file, RemotePath) for file in files):
        return [read(file) for file in files]
    # A store answers after some ten milliseconds, whatever is asked for.
    with ThreadPoolExecutor(_REQUESTS_AT_A_TIME) as requests:
        return list(requests.map(read, files))


def _walk(folder: Path, found: _Found) -> Iterator[Path]:
    """Files that may be traces, sorted; links to folders are not followed, so that no loop can catch us."""

    def closed(error: OSError) -> None:
        reason = f"the folder cannot be read ({error.strerror or error})"
        path = Path(error.filename) if error.filename else folder
        hint = "give yourself read permission on it"
        found.ignored.append(_Ignored(path=path, kind="permission", reason=reason, hint=hint))

    for parent, folders, files in os.walk(folder, onerror=closed, followlinks=False):
        folders[:] = sorted(name for name in folders if name != CACHE_FOLDER)
        for name in sorted(files):
            if _may_be_trace(name):
                yield Path(parent) / name


def _may_be_trace(name: str) -> bool:
    return name.endswith(_TRACE_SUFFIXES) or (name.startswith(".rank-") and name.endswith(".tmp"))


def _identity(path: TracePath) -> object:
    """Equal for two names of one file. Raises InputError for what is no regular file."""
    if isinstance(path, RemotePath):
        return path
    hint = "give Chrome-trace JSON files of torch.profiler"
    kind = "ignored_file"
    try:
        status = path.stat()
        if stat.S_ISREG(status.st_mode):
            return status.st_dev, status.st_ino
        reason = "not a regular file"
    except FileNotFoundError:
        reason = "a link to nothing"
    except PermissionError:
        reason, kind, hint = "not readable", "permission", "give yourself read permission on it"
    except OSError as error:
        reason = error.strerror or str(error)
    raise InputError(f"{path}: {reason}", hint=hint, reason=reason, kind=kind)


def _nothing_found(paths: Sequence[str], ignored: Sequence[_Ignored]) -> InputError:
    typed = " ".join(paths)
    if len(ignored) == 1 and len(paths) == 1 and not Path(typed).is_dir():
        (entry,) = ignored
        return InputError(f"{typed}: {entry.reason}", hint=entry.hint, reason=entry.reason, kind=entry.kind)
    reasons = [f"{entry.path.name}: {entry.reason}" for entry in ignored]
    shown = "; ".join(reasons[:_LISTED_IGNORED]) + (
        f"; and {len(reasons) - _LISTED_IGNORED} more" * (len(reasons) > _LISTED_IGNORED)
    )
    message = f"{typed}: no trace in it" + (f" ({shown})" if shown else "")
    return InputError(message, hint="record one with @tracekit.probe, or see what one is: tracekit demo")
