"""Which trace files are one run.

Captures of tracekit name their run and attempt. Traces of other tools are grouped by world size. Then:

1. In one folder, a file joins a job in two cases. First: the job was recording within ten minutes of it and does not
   have its rank yet. Clocks are skewed by seconds, ranks start minutes apart, and the next job starts later or has the
   same ranks. Second: the same process (host and pid) wrote the job's last window of that rank less than six hours
   before. Folders that only number windows (`iteration_10/`, `step-20/`) count as the folder above them.
2. Jobs of different folders (`node0/`, `rank1/`) are one job when three things hold. No rank is in both, except as a
   copy. They were recording within ten minutes of each other. They do not name different devices. The folders nearest
   to each other are joined first.

A trace that does not say when it was recorded passes all tests of time. A trace without a world size joins the others
only when these have one world size. In doubt there are two runs: users see files that are apart, but not files that are
mixed up.
"""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import PurePath

from tracekit.errors import InputError
from tracekit.model.notes import Note
from tracekit.read.files.identify import EARLIEST_WALL_CLOCK_NS, TraceFile, identify
from tracekit.read.files.storage import version_of

__all__ = ["RunFiles", "group_into_runs", "is_plainly_one_run", "started_far_apart"]

_MINUTE_NS = 60 * 10**9
_MAX_BETWEEN_RANKS_NS = 10 * _MINUTE_NS
_MAX_BETWEEN_WINDOWS_NS = 6 * 60 * _MINUTE_NS
_NUMBERED_FOLDER = re.compile(r"(?:iteration|iter|step|epoch|window|cycle)s?[-_ ]?\d+", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class RunFiles:
    """The trace files of one attempt of one run.

    Attributes:
        run_id: None if neither the files nor tracekit name the run.
        attempt: Counts from 0.
        world_size: None if no file says it.
        ranks: The files of each rank, one for each window, in order of time.
        start_ns: When the first window began, None if no file says it.
        notes: About the files.
    """

    run_id: str | None
    attempt: int
    world_size: int | None
    ranks: dict[int, tuple[TraceFile, ...]]
    start_ns: int | None
    notes: tuple[Note, ...] = ()


@dataclass
class _Job:
    """Traces of another tool that belong together.

    Attributes:
        folder: The folder of the first one.
        members: Files by rank, or by process where no rank is known.
        starts: When files began, on the wall clock, sorted.
        devices: Names of all devices in the files.
    """

    folder: PurePath
    members: dict[object, list[TraceFile]] = field(default_factory=lambda: defaultdict(list))
    starts: list[int] = field(default_factory=list)
    devices: set[str] = field(default_factory=set)

    def add(self, file: TraceFile) -> None:
        self.members[_rank_or_process(file)].append(file)
        self.devices.update(file.device_names)
        if file.wall_clock_ns is not None:
            insort(self.starts, file.wall_clock_ns)

    def accepts(self, file: TraceFile) -> bool:
        """Whether a file of the same folder belongs to this job."""
        windows = self.members.get(_rank_or_process(file))
        if not windows:
            return not self.starts or file.wall_clock_ns is None or _is_near(file.wall_clock_ns, self.starts)
        return all(window.process == file.process for window in windows) and _is_next_window(file, windows[-1])

    def is_same_job(self, other: _Job) -> bool:
        """Whether the files of another folder are of this job."""
        if self.devices and other.devices and not self.devices & other.devices:
            return False
        if self.starts and other.starts and not any(_is_near(start, self.starts) for start in other.starts):
            return False
        shared = self.members.keys() & other.members.keys()
        return all(_are_copies(self.members[key], other.members[key]) for key in shared)


def is_plainly_one_run(files: Sequence[TraceFile]) -> bool:
    """Whether the beginnings of the files show that they are one run, so that no file must be read to its end.

    They are different ranks of one world in one folder, recorded at the same time if they have the same base time. Once
    they are decoded, `started_far_apart` checks that.
    """
    starts_ns = [file.relative_start_ns for file in files if file.relative_start_ns is not None]
    return (
        len(starts_ns) == len(files) == len({file.rank for file in files})
        and len({file.world_size for file in files}) == 1
        and len({_folder(file) for file in files}) == 1
        and max(starts_ns) - min(starts_ns) <= _MAX_BETWEEN_RANKS_NS
    )


def started_far_apart(starts_ns: Sequence[int]) -> bool:
    """Whether ranks that began at these times are too far apart to be one job."""
    return bool(starts_ns) and max(starts_ns) - min(starts_ns) > _MAX_BETWEEN_RANKS_NS


def group_into_runs(files: Sequence[TraceFile]) -> list[RunFiles]:
    """Return all runs, from the oldest to the newest."""
    captured: dict[tuple[str, int], list[TraceFile]] = defaultdict(list)
    foreign: dict[int | None, list[TraceFile]] = defaultdict(list)
    for file in files:
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
    for members in foreign.values():
        runs += [_run(_with_ranks(job)) for job in _jobs(members)]
    return _with_names(sorted(runs, key=_run_order))


def _run_order(run: RunFiles) -> tuple[int, str, int, str]:
    first = next(iter(run.ranks.values()))[0]
    return run.start_ns or 0, run.run_id or "", run.attempt, str(first.path)


# ---- traces of other tools: files to jobs ------------------------------------------------------------------------


def _jobs(files: Iterable[TraceFile]) -> list[list[TraceFile]]:
    in_folder: dict[PurePath, list[_Job]] = defaultdict(list)
    # Files that say their time and world size come first, so that the others can join them.
    for file in sorted(files, key=_file_order):
        folder = _folder(file)
        job = next((job for job in reversed(in_folder[folder]) if job.accepts(file)), None)
        if job is None:
            job = _Job(folder)
            in_folder[folder].append(job)
        job.add(file)
    whole: list[_Job] = []
    parts = [job for jobs in in_folder.values() for job in jobs]
    for job in sorted(parts, key=lambda part: (not part.starts, part.starts[:1], str(part.folder))):
        same = [other for other in whole if other.is_same_job(job)]
        if not same:
            whole.append(job)
            continue
        nearest = max(same, key=lambda other: (_shared_parts(other.folder, job.folder), other.starts[-1:]))
        for member in (file for files in job.members.values() for file in files):
            nearest.add(member)
    return [[file for files in job.members.values() for file in files] for job in whole]


def _file_order(file: TraceFile) -> tuple[bool, bool, int, str]:
    return file.wall_clock_ns is None, file.world_size is None, file.start_ns or 0, str(file.path)


def _folder(file: TraceFile) -> PurePath:
    return PurePath(*(part for part in file.path.absolute().parent.parts if not _NUMBERED_FOLDER.fullmatch(part)))


def _rank_or_process(file: TraceFile) -> object:
    return file.rank if file.rank is not None else _process(file)


def _process(file: TraceFile) -> object:
    """Return a key that is equal for windows of one process.

    tensorboard_trace_handler names them `host_pid.<time>.pt.trace.json`, in one folder.
    """
    if file.process is None:
        return file.path
    return _folder(file), file.path.name.partition(".")[0], file.process


def _is_near(start_ns: int, starts: list[int]) -> bool:
    place = bisect_left(starts, start_ns)
    return any(abs(start_ns - other) <= _MAX_BETWEEN_RANKS_NS for other in starts[max(0, place - 1) : place + 1])


def _is_next_window(file: TraceFile, previous: TraceFile) -> bool:
    start_ns, before_ns = file.wall_clock_ns, previous.wall_clock_ns
    return start_ns is None or before_ns is None or 0 <= start_ns - before_ns <= _MAX_BETWEEN_WINDOWS_NS


def _are_copies(files: list[TraceFile], others: list[TraceFile]) -> bool:
    windows = {(file.process, file.start_ns) for file in files}
    return all(file.start_ns is not None and (file.process, file.start_ns) in windows for file in others)


def _shared_parts(folder: PurePath, other: PurePath) -> int:
    return next((i for i, (a, b) in enumerate(zip(folder.parts, other.parts, strict=False)) if a != b), 1 << 20)


def _with_ranks(files: list[TraceFile]) -> list[TraceFile]:
    """Give processes without a rank the free ranks, in order of their names, so that two never have the same rank."""
    taken = {file.rank for file in files}
    free = (rank for rank in range(len(files) + len(taken)) if rank not in taken)
    rank_of_process: dict[object, int] = {}
    ranked = []
    for file in sorted(files, key=lambda f: (f.path.name, str(f.path))):
        if file.rank is None:
            process = _process(file)
            if process not in rank_of_process:
                rank_of_process[process] = next(free)
            ranked.append(replace(file, rank=rank_of_process[process]))
        else:
            ranked.append(file)
    return ranked


# ---- the files of one run ----------------------------------------------------------------------------------------


def _run(files: Sequence[TraceFile], run_id: str | None = None, attempt: int = 0) -> RunFiles:
    notes = []
    by_rank: dict[int, dict[object, TraceFile]] = defaultdict(dict)
    for file in sorted(files, key=lambda f: (not f.unfinished, version_of(f.path).changed_ns or 0, str(f.path))):
        assert file.rank is not None
        windows = by_rank[file.rank]
        replaced = windows.get(_window_key(file))
        windows[_window_key(file)] = file
        if file.rank_from == "nothing" and len(files) > 1:
            text = f"rank {file.rank}: {file.path.name}: no rank found in it or in its name; numbered by name"
            notes.append(Note(kind="no_rank", severity="warning", rank=file.rank, file=file.path.name, text=text))
        if replaced is not None:
            kind = "unfinished_tmp" if replaced.unfinished else "duplicate_rank"
            text = f"rank {file.rank}: {replaced.path.name}: an older file of the same window; {file.path.name} is used"
            notes.append(Note(kind=kind, severity="info", rank=file.rank, file=replaced.path.name, text=text))
    ranks = {
        rank: tuple(sorted(windows.values(), key=lambda f: (f.first_step or 0, f.start_ns or 0, f.path.name)))
        for rank, windows in sorted(by_rank.items())
    }
    notes += [_unfinished(file) for windows in ranks.values() for file in windows if file.unfinished]
    return RunFiles(
        run_id=run_id,
        attempt=attempt,
        world_size=next((file.world_size for file in files if file.world_size is not None), None),
        ranks=ranks,
        start_ns=_start_ns(ranks),
        notes=tuple(notes),
    )


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
    return Note(kind="unfinished_tmp", severity="warning", rank=file.rank, file=file.path.name, text=text)


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
