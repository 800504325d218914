"""Paths, folders and globs to the trace files of one run.

Comes in: what the user typed. Goes out: a `Discovery`: the files of the chosen run by rank, the other runs that were
there, and a note for every file that is not used. Nothing is decoded here; `grouping` says which files are one run.
"""

from __future__ import annotations

import glob
import os
import stat
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tracekit.errors import InputError, UsageError
from tracekit.model.notes import Note
from tracekit.read.cache import CACHE_FOLDER, Cache
from tracekit.read.grouping import RunFiles, group_into_runs
from tracekit.read.identity import identify
from tracekit.read.peek import MANIFEST_SUFFIX, TraceFile, from_manifest

__all__ = ["Discovery", "RunFiles", "discover"]

_TRACE_SUFFIXES = (".json", ".json.gz", ".json.zst", ".json.tmp", ".gz.tmp")
_LISTED_IGNORED = 8


@dataclass(frozen=True, kw_only=True)
class Discovery:
    """`notes`: about the chosen run's files, and about files that belong to no run."""

    chosen: RunFiles
    others: tuple[RunFiles, ...] = ()
    notes: tuple[Note, ...] = ()


@dataclass(frozen=True, kw_only=True)
class _Ignored:
    path: Path
    kind: str
    reason: str
    hint: str

    def note(self) -> Note:
        name = self.path.name
        return Note(kind=self.kind, severity="warning", file=name, text=f"{name}: {self.reason}; left out")


@dataclass
class _Found:
    files: list[TraceFile] = field(default_factory=list)
    ignored: list[_Ignored] = field(default_factory=list)


def discover(
    paths: Sequence[str], *, run: str | None = None, attempt: int | None = None, cache: Cache | None = None
) -> Discovery:
    """Find the newest run below `paths` (or the one that `run` and `attempt` name).

    Raises InputError when a path does not exist or nothing below it is a trace, UsageError when no run has that name.
    """
    found = _Found()
    for typed in paths:
        _collect(typed, found, cache)
    if not found.files:
        raise _nothing_found(paths, found.ignored)
    runs, notes = _with_ignored(group_into_runs(found.files), found.ignored)
    wanted = [r for r in runs if (run is None or r.run_id == run) and (attempt is None or r.attempt == attempt)]
    if not wanted:
        names = ", ".join(sorted({f"{r.run_id} (attempt {r.attempt})" for r in runs}))
        raise UsageError(
            f"no run {run or ''} attempt {attempt if attempt is not None else 'any'}", hint=f"there is {names}"
        )
    chosen = wanted[-1]
    others = tuple(r for r in runs if r is not chosen)
    return Discovery(chosen=chosen, others=others, notes=(*notes, *chosen.notes))


def _with_ignored(runs: Sequence[RunFiles], ignored: Iterable[_Ignored]) -> tuple[list[RunFiles], list[Note]]:
    """The runs with the notes about unusable files that lie in their folders, and the notes that are left."""
    runs_in: dict[Path, set[int]] = defaultdict(set)
    for place, run in enumerate(runs):
        for folder in {folder for windows in run.ranks.values() for file in windows for folder in file.path.parents}:
            runs_in[folder].add(place)
    notes_of: dict[int, list[Note]] = defaultdict(list)
    left: list[Note] = []
    for entry in ignored:
        owners = next((runs_in[folder] for folder in entry.path.parents if folder in runs_in), set())
        (notes_of[next(iter(owners))] if len(owners) == 1 else left).append(entry.note())
    return [replace(run, notes=(*notes_of[place], *run.notes)) for place, run in enumerate(runs)], left


def _collect(typed: str, found: _Found, cache: Cache | None) -> None:
    path = Path(typed)
    if path.is_dir():
        manifests: dict[Path, TraceFile] = {}
        candidates = []
        for file in _walk(path, found):
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
            _collect(match, found, cache)
        return
    seen = {_identity(file.path) for file in found.files}
    for file, trace in known.items():
        try:
            _check_regular(file)
            if _identity(file) not in seen:
                seen.add(_identity(file))
                found.files.append(trace or identify(file, cache))
        except InputError as error:
            found.ignored.append(_Ignored(path=file, kind=error.kind, reason=error.reason, hint=error.hint))


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
            if name.endswith(_TRACE_SUFFIXES) or (name.startswith(".rank-") and name.endswith(".tmp")):
                yield Path(parent) / name


def _check_regular(path: Path) -> None:
    hint = "give Chrome-trace JSON files of torch.profiler"
    kind = "ignored_file"
    try:
        if stat.S_ISREG(path.stat().st_mode):
            return
        reason = "not a regular file"
    except FileNotFoundError:
        reason = "a link to nothing"
    except PermissionError:
        reason, kind, hint = "not readable", "permission", "give yourself read permission on it"
    except OSError as error:
        reason = error.strerror or str(error)
    raise InputError(f"{path}: {reason}", hint=hint, reason=reason, kind=kind)


def _identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


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
    return InputError(message, hint="record one with @tracekit.probe, or see tracekit demo")
