"""Which traces that other tools recorded are one job, among traces of the same world size.

1. In one folder, a file joins a job in two cases. First: the job was recording within ten minutes of it and does not
   have its rank yet. Clocks are skewed by seconds, ranks start minutes apart, and the next job starts later or has the
   same ranks. Second: the same process (host and pid) wrote the job's last window of that rank less than six hours
   before. If another process wrote it, the job was restarted. Files that began after the restart join the later job,
   even if the earlier one lacks their rank. Two processes of a rank that began within a second are no restart: one of
   them is left aside, and no other rank joins it. Folders that only number windows (`iteration_10/`, `step-20/`) count
   as the folder above them.
2. Jobs of different folders (`node0/`, `rank1/`) are one job when three things hold. No rank is in both, except as a
   copy. They were recording within ten minutes of each other. They do not name different devices, or began within ten
   seconds of each other in a world of one size. The folders nearest to each other are joined first.
3. A job has no more processes than its world has ranks.

A trace that does not say when it was recorded passes all tests of time. In doubt there are two jobs: users see files
that are apart, but not files that are mixed up.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import compress, pairwise
from pathlib import PurePath

from tracekit.read.files.identify import TraceFile
from tracekit.read.files.ranks import MOST_BETWEEN_NODES_NS, folder_of, process_of, rank_in_name

_MINUTE_NS = 60 * 10**9
_MAX_BETWEEN_RANKS_NS = 10 * _MINUTE_NS
_MIN_RESTART_NS = 10**9  # a job that starts again loads its libraries first
_MAX_BETWEEN_WINDOWS_NS = 6 * 60 * _MINUTE_NS


@dataclass
class _Job:
    """The files of one job.

    Attributes:
        folder: The folder of the first one.
        members: Files by rank, or by process where no rank is known.
        starts_ns: When files began, on the wall clock, sorted.
        devices: Names of all devices in the files.
        world_size: The number of ranks, at least; 0 if it is not known.
    """

    folder: PurePath
    members: dict[object, list[TraceFile]] = field(default_factory=lambda: defaultdict(list))
    starts_ns: list[int] = field(default_factory=list)
    devices: set[str] = field(default_factory=set)
    world_size: int = 0

    def add(self, file: TraceFile) -> None:
        self.members[_rank_or_process(file)].append(file)
        self.devices.update(file.device_names)
        self.world_size = max(self.world_size, file.known_world_size)
        if file.wall_clock_ns is not None:
            insort(self.starts_ns, file.wall_clock_ns)

    def accepts(self, file: TraceFile) -> bool:
        """Whether a file of the same folder belongs to this job."""
        windows = self.members.get(_rank_or_process(file))
        if not windows:
            world_size = max(self.world_size, file.known_world_size)
            if file.known_world_size and len(self._processes() | {_rank_or_process(file)}) > world_size:
                return False
            return not self.starts_ns or file.wall_clock_ns is None or _is_near(file.wall_clock_ns, self.starts_ns)
        return all(window.process == file.process for window in windows) and _is_next_window(file, windows[-1])

    def later_files(self, file: TraceFile) -> list[TraceFile]:
        """Return the files of this job that belong to the job of `file`, whose rank this one has from another process.

        Between the two processes the job was restarted, most likely when no file began for longest. No file is moved
        if a process wrote windows before and after that.
        """
        windows, start_ns = self.members.get(_rank_or_process(file)), file.wall_clock_ns
        since_ns = windows[-1].wall_clock_ns if windows else None
        if since_ns is None or start_ns is None or not 0 < start_ns - since_ns <= _MAX_BETWEEN_RANKS_NS:
            return []
        starts_ns = [*self.starts_ns[bisect_left(self.starts_ns, since_ns) :], start_ns]
        gaps_ns = [after - before for before, after in pairwise(starts_ns)]
        begin_ns = starts_ns[gaps_ns.index(max(gaps_ns)) + 1]
        later = [
            [window for window in windows if window.wall_clock_ns is None or window.wall_clock_ns >= begin_ns]
            for windows in self.members.values()
        ]
        whole = [len(moved) in (0, len(windows)) for moved, windows in zip(later, self.members.values(), strict=True)]
        return [window for moved in later for window in moved] if all(whole) else []

    def remove(self, files: Sequence[TraceFile]) -> None:
        """Take whole ranks out of this job."""
        for file in files:
            self.members.pop(_rank_or_process(file), None)
        remaining = [window for windows in self.members.values() for window in windows]
        self.starts_ns = sorted(window.wall_clock_ns for window in remaining if window.wall_clock_ns is not None)
        self.devices = {name for window in remaining for name in window.device_names}

    def is_same_job(self, other: _Job) -> bool:
        """Whether the files of another folder are of this job."""
        if self.devices and other.devices and not self.devices & other.devices and not self._began_with(other):
            return False
        if self.starts_ns and other.starts_ns and not any(_is_near(start, self.starts_ns) for start in other.starts_ns):
            return False
        if len(self._processes() | other._processes()) > max(self.world_size, other.world_size):
            return False
        shared = self.members.keys() & other.members.keys()
        return all(_are_copies(self.members[key], other.members[key]) for key in shared)

    def _began_with(self, other: _Job) -> bool:
        """Whether both are of a world of one size, and began at one time: its GPUs may be of two models."""
        starts_ns = self.starts_ns[:1] + other.starts_ns[:1]
        is_at_once = len(starts_ns) == 2 and abs(starts_ns[0] - starts_ns[1]) <= MOST_BETWEEN_NODES_NS
        return is_at_once and self.world_size == other.world_size > 1

    def _processes(self) -> set[object]:
        """Return the ranks or processes whose world is known by their groups alone."""
        of_world = (any(f.membership and f.membership.world_size for f in files) for files in self.members.values())
        return set(compress(self.members, of_world))


class _Jobs:
    """Jobs in the order in which they were found. Files in order of time need to look at the recent ones alone.

    Attributes:
        every: all of them.
    """

    def __init__(self, within_ns: int) -> None:
        """within_ns: how long after the last file of a job one may begin that joins it."""
        self.every: list[_Job] = []
        self._recent: list[_Job] = []
        self._within_ns = within_ns
        self._latest_ns = 0

    def append(self, job: _Job) -> None:
        self.every.append(job)
        self._recent.append(job)

    def near(self, start_ns: int | None) -> list[_Job]:
        """Return the jobs that what began at a time, on the wall clock, may join; all without a time."""
        if start_ns is None:
            return self.every
        if start_ns < self._latest_ns:  # the order of time begins again
            self._recent = [*self.every]
        self._latest_ns = start_ns
        first_ns = start_ns - self._within_ns
        self._recent = [job for job in self._recent if job.starts_ns and job.starts_ns[-1] >= first_ns]
        return self._recent


def is_plainly_one_job(files: Sequence[TraceFile]) -> bool:
    """Whether the beginnings of the files show that they are one job, so that no file must be read to its end.

    They are different ranks of one world in one folder, recorded at the same time if they have the same base time. Once
    they are decoded, `started_far_apart` checks that.
    """
    starts_ns = [file.relative_start_ns for file in files if file.relative_start_ns is not None]
    return (
        len(starts_ns) == len(files) == len({file.rank for file in files})
        and len({file.world_size for file in files}) == 1
        and len({folder_of(file) for file in files}) == 1
        and max(starts_ns) - min(starts_ns) <= _MAX_BETWEEN_RANKS_NS
    )


def started_far_apart(starts_ns: Sequence[int]) -> bool:
    """Whether ranks that began at these times are too far apart to be one job."""
    return bool(starts_ns) and max(starts_ns) - min(starts_ns) > _MAX_BETWEEN_RANKS_NS


def group_into_jobs(files: Iterable[TraceFile]) -> list[list[TraceFile]]:
    """Return the files of each job."""
    in_folder: dict[PurePath, list[TraceFile]] = defaultdict(list)
    # Files that say their time and world size come first, in order of time, so that the others can join them.
    for file in sorted(files, key=_file_order):
        in_folder[folder_of(file)].append(file)
    jobs = [job for folder, members in in_folder.items() for job in _jobs_of_folder(folder, members)]
    return [[file for files in job.members.values() for file in files] for job in _joined(jobs)]


def _jobs_of_folder(folder: PurePath, files: Sequence[TraceFile]) -> list[_Job]:
    """Return the jobs of one folder, of its files in `_file_order`."""
    jobs = _Jobs(_MAX_BETWEEN_WINDOWS_NS)
    second = _second_processes(files)
    # Second processes come last, so that the other ranks do not join them.
    for file in sorted(files, key=lambda file: (file.rank, file.process) in second):
        job = next((job for job in reversed(jobs.near(file.wall_clock_ns)) if job.accepts(file)), None)
        if job is None:
            job = _Job(folder)
            if jobs.every and (file.rank, file.process) not in second:
                last = jobs.every[-1]
                later = last.later_files(file)
                last.remove(later)
                for other in later:
                    job.add(other)
            jobs.append(job)
        job.add(file)
    return jobs.every


def _second_processes(files: Sequence[TraceFile]) -> set[tuple[int | None, str | None]]:
    """Return rank and process where two processes of a rank began within a second: no job is restarted so soon.

    The process whose file is named after the rank is the first one, else the one that began first. `files` are in
    order of time.
    """
    of_rank: dict[int, dict[str | None, tuple[int, TraceFile]]] = defaultdict(dict)
    for file in files:
        if file.rank is not None and file.wall_clock_ns is not None:
            of_rank[file.rank].setdefault(file.process, (file.wall_clock_ns, file))
    second: set[tuple[int | None, str | None]] = set()
    for rank, of_process in of_rank.items():
        kept, *others = of_process.values()
        for other in others:
            if other[0] - kept[0] <= _MIN_RESTART_NS:
                kept, left = sorted((kept, other), key=lambda timed: rank_in_name(timed[1].path) != rank)
                second.add((rank, left[1].process))
            else:
                kept = other
    return second


def _joined(jobs: Iterable[_Job]) -> list[_Job]:
    """Return the jobs of different folders, of which those that are one job are joined."""
    whole = _Jobs(_MAX_BETWEEN_RANKS_NS)
    for job in sorted(jobs, key=lambda each: (not each.starts_ns, each.starts_ns[:1], str(each.folder))):
        same = [other for other in whole.near(min(job.starts_ns, default=None)) if other.is_same_job(job)]
        if not same:
            whole.append(job)
            continue
        nearest = max(same, key=lambda other: (_shared_parts(other.folder, job.folder), other.starts_ns[-1:]))
        for member in (file for files in job.members.values() for file in files):
            nearest.add(member)
    return whole.every


def _file_order(file: TraceFile) -> tuple[bool, bool, int, str]:
    return file.wall_clock_ns is None, file.world_size is None, file.start_ns or 0, str(file.path)


def _rank_or_process(file: TraceFile) -> object:
    return file.rank if file.rank is not None else process_of(file)


def _is_near(start_ns: int, starts_ns: list[int]) -> bool:
    position = bisect_left(starts_ns, start_ns)
    return any(
        abs(start_ns - other) <= _MAX_BETWEEN_RANKS_NS for other in starts_ns[max(0, position - 1) : position + 1]
    )


def _is_next_window(file: TraceFile, previous: TraceFile) -> bool:
    start_ns, before_ns = file.wall_clock_ns, previous.wall_clock_ns
    return start_ns is None or before_ns is None or 0 <= start_ns - before_ns <= _MAX_BETWEEN_WINDOWS_NS


def _are_copies(files: list[TraceFile], others: list[TraceFile]) -> bool:
    windows = {(file.process, file.start_ns) for file in files}
    return all(file.start_ns is not None and (file.process, file.start_ns) in windows for file in others)


def _shared_parts(folder: PurePath, other: PurePath) -> int:
    return next((i for i, (a, b) in enumerate(zip(folder.parts, other.parts, strict=False)) if a != b), 1 << 20)
