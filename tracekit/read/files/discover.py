"""The trace files of one run, found from the paths, folders and globs that the user typed.

Nothing is decoded here. `grouping` decides which files are one run.
"""

from __future__ import annotations

import glob
import os
import stat
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import TypeVar

import msgspec

from tracekit.errors import InputError, UsageError
from tracekit.model.metadata import MANIFEST_SUFFIX, PROGRESS_SUFFIX, Progress, ProgressHeader
from tracekit.model.notes import Note
from tracekit.read.cache.cache_dir import CACHE_FOLDER
from tracekit.read.decode.event_array import PERFETTO
from tracekit.read.files.foreign_jobs import is_plainly_one_job
from tracekit.read.files.grouping import RunFiles, group_into_runs
from tracekit.read.files.identify import TraceFile, from_manifest, identify, identify_fast
from tracekit.read.files.ranks import rank_in_name, with_ranks_from
from tracekit.read.files.storage import RemotePath, TracePath, find_remote, parse_path

_TRACE_SUFFIXES = (".json", ".json.gz", ".json.zst", ".json.tmp", ".gz.tmp")
_PERFETTO_SUFFIXES = (".pftrace", ".pftrace.gz", ".perfetto-trace", ".perfetto-trace.gz")
_MAX_LISTED = 8  # ignored files in an error
_PARALLEL_REQUESTS = 32
_HEADER = msgspec.json.Decoder(ProgressHeader)

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Discovery:
    """The runs that were found.

    Attributes:
        chosen: The run to analyse.
        others: All other runs.
        progress: What ranks of the chosen run left of their attempts, in no order.
        notes: About the files of the chosen run, and about files of no run.
        is_provisional: The files were taken as one run without their base times, which are at their ends.
    """

    chosen: RunFiles
    others: tuple[RunFiles, ...] = ()
    progress: tuple[Progress, ...] = ()
    notes: tuple[Note, ...] = ()
    is_provisional: bool = False


@dataclass(frozen=True, kw_only=True)
class _IgnoredFile:
    path: TracePath
    kind: str
    reason: str
    hint: str
    rank: int | None = None

    def note(self) -> Note:
        name = self.path.name
        note = Note(id=self.kind, severity="warning", file=name, text=f"{name}: {self.reason}; left out")
        return note.about_rank(self.rank)


@dataclass
class _Search:
    identify_file: Callable[[TracePath], TraceFile]
    files: list[TraceFile] = field(default_factory=list)
    ignored: list[_IgnoredFile] = field(default_factory=list)
    perfetto: list[_IgnoredFile] = field(default_factory=list)  # of folders; said where there is no other trace
    progress: list[TracePath] = field(default_factory=list)
    # By the identity of each file, which does not depend on names: a name of it for each rank that its names say.
    names: dict[object, dict[int | None, TracePath]] = field(default_factory=lambda: defaultdict(dict))


def discover(
    paths: Sequence[str],
    *,
    run: str | None = None,
    attempt: int | None = None,
    ranks_from: str | None = None,
    identify_file: Callable[[TracePath], TraceFile] = identify_fast,
) -> Discovery:
    """Find the newest run below `paths`, or the one that `run` and `attempt` name.

    `ranks_from`: a regular expression whose group is the rank, in the path of a file that does not name its rank.
    `identify_file`: `identify_fast`, or `identify` to be sure which files belong together. Raises InputError when a
    path does not exist or nothing below it is a trace, UsageError when no run has that name
    or `ranks_from` finds no rank.
    """
    search = _Search(identify_file=identify_file)
    for typed in paths:
        _collect(typed, search)
    if not is_plainly_one_job(search.files):
        _identify_again(search)
    if not search.files:
        raise _no_trace_error(paths, search.ignored or search.perfetto)
    if ranks_from is not None:
        search.files = with_ranks_from(search.files, ranks_from)
    runs, notes = _with_ignored(group_into_runs(search.files), search.ignored)
    wanted = [r for r in runs if (run is None or r.run_id == run) and (attempt is None or r.attempt == attempt)]
    if not wanted:
        names = ", ".join(sorted({f"{r.run_id} (attempt {r.attempt})" for r in runs}))
        asked = " and ".join([f"--run {run}"] * (run is not None) + [f"--attempt {attempt}"] * (attempt is not None))
        raise UsageError(f"{asked}: no such run in {' '.join(paths)}", hint=f"there is {names}")
    chosen = wanted[-1]
    others = tuple(r for r in runs if r is not chosen)
    is_provisional = any(file.relative_start_ns is not None for file in search.files)
    return Discovery(
        chosen=chosen,
        others=others,
        progress=_progress_of(chosen.run_id, search.progress),
        notes=(*notes, *chosen.notes),
        is_provisional=is_provisional,
    )


def _progress_of(run_id: str | None, files: Sequence[TracePath]) -> tuple[Progress, ...]:
    """Return what progress files say of a run. Of many files only those are read whose path names the run."""
    if run_id is None:
        return ()
    named = [file for file in files if run_id in file.as_posix()]
    found = _map(_progress, named or files)
    return tuple(progress for progress in found if progress is not None and progress.header.run_id == run_id)


def _progress(file: TracePath) -> Progress | None:
    try:
        return Progress.parse(file.read_bytes(), _HEADER.decode)
    except (OSError, ValueError):  # it says nothing without which the traces could not be read
        return None


def _with_ignored(runs: Sequence[RunFiles], ignored: Iterable[_IgnoredFile]) -> tuple[list[RunFiles], list[Note]]:
    """Return the runs with the notes about unusable files in their folders, and the other notes."""
    runs_in: dict[PurePath, set[int]] = defaultdict(set)
    for index, run in enumerate(runs):
        for folder in {folder for windows in run.ranks.values() for file in windows for folder in file.path.parents}:
            runs_in[folder].add(index)
    notes_of: dict[int, list[Note]] = defaultdict(list)
    of_no_run: list[Note] = []
    for entry in ignored:
        owners = next((runs_in[folder] for folder in entry.path.parents if folder in runs_in), set())
        (notes_of[next(iter(owners))] if len(owners) == 1 else of_no_run).append(entry.note())
    return [replace(run, notes=(*notes_of[index], *run.notes)) for index, run in enumerate(runs)], of_no_run


def _collect(typed: str, search: _Search) -> None:
    if not typed:  # it would be this folder
        raise _no_such_path_error(typed)
    path = parse_path(typed)
    if isinstance(path, RemotePath):
        files = find_remote(path)
        if not files:
            raise _no_such_path_error(typed)
        if files == [path]:
            _add(files, (), search)
        else:
            _add_all([file for file in files if _may_matter(file.name)], search)
    elif _is_folder(path, typed):
        _add_all(list(_walk(path, search)), search)
    elif os.path.lexists(path):
        _add([path], (), search)
    else:
        matches = sorted(glob.glob(str(path), recursive=True))  # noqa: PTH207 - the pattern may be absolute
        if not matches:
            raise _no_such_path_error(typed)
        for match in matches:
            _collect(match, search)


def _is_folder(path: Path, typed: str) -> bool:
    try:
        return path.is_dir()
    except OSError as error:  # such as a folder above it that may not be entered
        raise InputError(f"{typed}: {error.strerror or error}", hint="check the path and its permissions") from None


def _no_such_path_error(typed: str) -> InputError:
    if not typed:
        return InputError("the name of the run is empty", hint="is a variable of the shell not set?")
    what = "no file matches" if glob.has_magic(typed) else "no such file or folder"
    return InputError(f"{typed}: {what}", hint="give a run folder, a trace file or a glob in quotes")


def _add_all(files: Sequence[TracePath], search: _Search) -> None:
    """Add files of one folder, some of which may be manifests."""
    manifests = [file for file in files if file.name.endswith(MANIFEST_SUFFIX)]
    search.progress += [file for file in files if file.name.endswith(PROGRESS_SUFFIX)]
    _add([file for file in files if not file.name.endswith((MANIFEST_SUFFIX, PROGRESS_SUFFIX))], manifests, search)


def _add(files: Iterable[TracePath], manifests: Sequence[TracePath], search: _Search) -> None:
    in_manifests = {trace.path: trace for trace in _map(from_manifest, manifests) if trace is not None}
    new: list[TracePath] = []
    for file in files:
        try:
            identity = _identity(file)
        except InputError as error:
            search.ignored.append(_IgnoredFile(path=file, kind=error.kind, reason=error.reason, hint=error.hint))
            continue
        names = search.names[identity]
        rank = rank_in_name(file)
        if not names:
            new.append(file)
        elif rank is not None and rank not in names and (of_others := [one for one in names if one is not None]):
            search.ignored.append(_another_name(file, rank, names[of_others[0]]))
        names.setdefault(rank, file)
    _add_identified(search, _map(lambda file: in_manifests.get(file) or _identify(search.identify_file, file), new))


def _another_name(file: TracePath, rank: int, first: TracePath) -> _IgnoredFile:
    hint = "give each rank the file that it recorded"
    reason = f"another name of the file {first.name}"
    return _IgnoredFile(path=file, kind="ignored-file", reason=reason, hint=hint, rank=rank)


def _identify_again(search: _Search) -> None:
    """Look at the ends of files whose beginnings do not say when they were recorded."""
    known = [file for file in search.files if file.relative_start_ns is None]
    others = [file.path for file in search.files if file.relative_start_ns is not None]
    search.files = known
    _add_identified(search, _map(lambda file: _identify(identify, file), others))


def _add_identified(search: _Search, traces: Iterable[TraceFile | _IgnoredFile]) -> None:
    for trace in traces:
        if isinstance(trace, TraceFile):
            search.files.append(trace)
        else:
            search.ignored.append(trace)


def _identify(identify_file: Callable[[TracePath], TraceFile], file: TracePath) -> TraceFile | _IgnoredFile:
    try:
        return identify_file(file)
    except InputError as error:
        return _IgnoredFile(path=file, kind=error.kind, reason=error.reason, hint=error.hint)


def _map(function: Callable[[TracePath], T], files: Sequence[TracePath]) -> list[T]:
    if not any(isinstance(file, RemotePath) for file in files):
        return [function(file) for file in files]
    from concurrent.futures import ThreadPoolExecutor  # its import takes milliseconds

    # A store takes some ten milliseconds for any request.
    with ThreadPoolExecutor(_PARALLEL_REQUESTS) as requests:
        return list(requests.map(function, files))


def _walk(folder: Path, search: _Search) -> Iterator[Path]:
    """Yield files that may be traces or say something of them, sorted.

    Links to folders are not followed, since they can be loops.
    """

    def ignore(error: OSError) -> None:
        reason = f"the folder cannot be read ({error.strerror or error})"
        path = Path(error.filename) if error.filename else folder
        hint = "give yourself read permission on it"
        search.ignored.append(_IgnoredFile(path=path, kind="permission", reason=reason, hint=hint))

    for parent, folders, files in os.walk(folder, onerror=ignore, followlinks=False):
        folders[:] = sorted(name for name in folders if name != CACHE_FOLDER)
        for name in sorted(files):
            if _may_matter(name):
                yield Path(parent) / name
            elif name.endswith(_PERFETTO_SUFFIXES):
                what, hint = PERFETTO
                path = Path(parent) / name
                search.perfetto.append(
                    _IgnoredFile(path=path, kind="ignored-file", reason=f"not JSON but {what}", hint=hint)
                )


def _may_matter(name: str) -> bool:
    return name.endswith((*_TRACE_SUFFIXES, PROGRESS_SUFFIX)) or (name.startswith(".rank-") and name.endswith(".tmp"))


def _identity(path: TracePath) -> object:
    """Return a value that is equal for two names of one file. Raises InputError for what is no regular file."""
    if isinstance(path, RemotePath):
        return path
    hint = "give Chrome-trace JSON files of torch.profiler"
    kind = "ignored-file"
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


def _no_trace_error(paths: Sequence[str], ignored: Sequence[_IgnoredFile]) -> InputError:
    typed = " ".join(paths)
    if len(ignored) == 1 and len(paths) == 1 and not Path(typed).is_dir():
        (entry,) = ignored
        return InputError(f"{typed}: {entry.reason}", hint=entry.hint, reason=entry.reason, kind=entry.kind)
    reasons = [f"{entry.path.name}: {entry.reason}" for entry in ignored]
    shown = "; ".join(reasons[:_MAX_LISTED]) + (
        f"; and {len(reasons) - _MAX_LISTED} more" * (len(reasons) > _MAX_LISTED)
    )
    message = f"{typed}: no trace in it" + (f" ({shown})" if shown else "")
    hints = {entry.hint for entry in ignored}
    general = "record one with @tracekit.probe, or see what one is: tracekit demo"
    return InputError(message, hint=PERFETTO[1] if hints == {PERFETTO[1]} else general)
