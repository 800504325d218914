"""Which files the capture writes, how a finished file gets its name, and how much disk space the files may take.

A window of a rank is `<run>/attempt-<n>/step-<first>/rank-<r>.json.gz`, with `rank-<r>.manifest.json` beside it. A file
that is not finished has a name that begins with a dot and ends with `.tmp`.

`DiskBudget` has two limits: a total, and an amount that stays free. The total counts for all probes of the process, as
a program may make a new one for each of a hundred models. It applies to the final files. torch's uncompressed export of
a window lies beside them until it has been read, and its size is known only then.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tracekit.errors import OutputError, UsageError
from tracekit.model.metadata import MANIFEST_SUFFIX, PROGRESS_SUFFIX

MAX_RUN_ID_LENGTH = 64
PACKED_SUFFIX = ".json.gz"
RANKS_A_FOLDER = 1000
MAX_RANKS_IN_ONE_FOLDER = 4096

MAX_BYTES = 2**30
MIN_FREE_BYTES = 256 * 2**20
ENVIRONMENT_OPTIONS = {"max_bytes": "TRACEKIT_MAX_BYTES", "min_free_bytes": "TRACEKIT_MIN_FREE_BYTES"}

_written: list[int] = []  # bytes of each recording of this process; appending is safe on any thread


def name_part(text: str, length: int) -> str:
    """Return the text as it may stand in the name of a file or folder, `length` characters at most."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", text)[:length]


def trace_folder(root: Path, run_id: str, attempt: int, first_step: int, rank: int, world_size: int) -> Path:
    """Return `<root>/<run_id>/attempt-<n>/step-<first>`; above 4096 ranks each thousand has a folder in it."""
    return _of_rank(root / run_id / f"attempt-{attempt}" / f"step-{first_step:09d}", rank, world_size)


def progress_file(root: Path, run_id: str, attempt: int, rank: int, world_size: int) -> Path:
    """Return `<root>/<run_id>/attempt-<n>/rank-<r>.progress`; above 4096 ranks each thousand has a folder."""
    return _of_rank(root / run_id / f"attempt-{attempt}", rank, world_size) / f"rank-{rank:06d}{PROGRESS_SUFFIX}"


def newest_attempt(run: Path) -> int | None:
    """Return the highest number of an attempt in the folder of a run; None without any."""
    numbers = [folder.name.removeprefix("attempt-") for folder in run.glob("attempt-*")]
    return max((int(number) for number in numbers if number.isdecimal()), default=None)


def _of_rank(folder: Path, rank: int, world_size: int) -> Path:
    return folder if world_size <= MAX_RANKS_IN_ONE_FOLDER else folder / f"rank-{rank // RANKS_A_FOLDER:03d}xxx"


def unused_run_id(root: Path, run_id: str, attempt: int, first_step: int, rank: int, world_size: int) -> str:
    """Return `run_id`, or `<run_id>-2` and so on if this rank's file exists there.

    A recording is never replaced, but launchers reuse ids, and containers number their processes alike.
    """
    candidate, number = run_id, 1
    while RecordingPaths(trace_folder(root, candidate, attempt, first_step, rank, world_size), rank).is_taken:
        number += 1
        suffix = f"-{number}"
        candidate = run_id[: MAX_RUN_ID_LENGTH - len(suffix)] + suffix
    return candidate


@dataclass(frozen=True)
class RecordingPaths:
    """The files of one window of one rank in `folder`, and the scratch files of this process beside them."""

    folder: Path
    rank: int

    @property
    def _name(self) -> str:
        return f"rank-{self.rank:06d}"

    @property
    def _scratch(self) -> str:
        return f".{self._name}.{name_part(os.uname().nodename, 64)}.{os.getpid()}"

    @property
    def packed(self) -> Path:
        return self.folder / f"{self._name}{PACKED_SUFFIX}"

    @property
    def manifest(self) -> Path:
        return self.folder / f"{self._name}{MANIFEST_SUFFIX}"

    @property
    def export(self) -> Path:
        """The scratch file that torch writes."""
        return self.folder / f"{self._scratch}.tmp"

    @property
    def unfinished_trace(self) -> Path:
        return self.folder / f"{self._scratch}.gz.tmp"

    @property
    def unfinished_manifest(self) -> Path:
        return self.folder / f"{self._scratch}.manifest.tmp"

    @property
    def is_taken(self) -> bool:
        return any(os.path.lexists(file) for file in (self.packed, self.manifest))

    def remove_scratch(self) -> None:
        """Remove this process' scratch files, also those of a killed process with the same pid."""
        with contextlib.suppress(OSError):
            for file in self.folder.glob(f"{self._scratch}.*"):
                file.unlink(missing_ok=True)


def publish(file: Path, target: Path) -> None:
    """Rename a finished file, unless the target exists: `replace` would overwrite it silently."""
    try:
        os.link(file, target)
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, "File exists", str(target)) from None
        file.replace(target)
    else:
        file.unlink()


@dataclass(kw_only=True)
class DiskBudget:
    """The limits. Raises UsageError for a value that is not a number of bytes.

    Attributes:
        max_bytes: for all files of this process together.
        min_free_bytes: what must stay free on their file system; 0 for no limit.
    """

    max_bytes: int = MAX_BYTES
    min_free_bytes: int = MIN_FREE_BYTES

    def __post_init__(self) -> None:
        for option in ENVIRONMENT_OPTIONS:
            value = getattr(self, option)
            if not isinstance(value, int) or value < 0:
                raise UsageError(f"{option}={value!r} is not a number of bytes", hint="pass an integer >= 0")

    def check_free_space(self, folder: Path) -> None:
        """Raise OutputError if the file system of `folder` has less space than must stay free."""
        free_bytes = shutil.disk_usage(folder).free
        if free_bytes < self.min_free_bytes:
            raise OutputError(
                f"{folder} has {_mib(free_bytes)} left, fewer than {_mib(self.min_free_bytes)}",
                hint="free some space, pass another path, or lower min_free_bytes (TRACEKIT_MIN_FREE_BYTES)",
            )

    def check(self, more_bytes: int) -> None:
        """Raise OutputError if files of `more_bytes` more would exceed the total."""
        if sum(_written) + more_bytes > self.max_bytes:
            raise OutputError(
                f"the recordings of this rank would take more than max_bytes={self.max_bytes}",
                hint="record fewer steps or windows, or raise max_bytes (TRACEKIT_MAX_BYTES)",
            )

    def count_written(self, size_bytes: int) -> None:
        """Count files of `size_bytes` that were written."""
        _written.append(size_bytes)


def reset_written() -> None:
    """Count from zero again: in a forked child, what was written so far is the parent's."""
    _written.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=reset_written)


def disk_budget_from_environment(
    budget: DiskBudget, environment: Mapping[str, str], warn: Callable[[str], None]
) -> DiskBudget:
    """Return the budget with `TRACEKIT_MAX_BYTES` and `TRACEKIT_MIN_FREE_BYTES` applied.

    An invalid value is reported through `warn` and ignored.
    """
    for option, variable in ENVIRONMENT_OPTIONS.items():
        if text := environment.get(variable):
            try:
                budget = replace(budget, **{option: int(text)})
            except (ValueError, UsageError):
                warn(f"{variable}={text!r} is ignored: it is not a number of bytes")
    return budget


def _mib(size_bytes: int) -> str:
    return f"{size_bytes >> 20} MiB"
