"""Limits the disk space that the probes of a process take: a total, and an amount that stays free.

What was written counts for all probes of the process, as a program may make a new one for each of a hundred models. The
limits apply to the final files. torch's uncompressed export of a window lies beside them until it has been read, and
its size is known only then.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tracekit.errors import OutputError, UsageError

MAX_BYTES = 2**30
MIN_FREE_BYTES = 256 * 2**20
ENVIRONMENT_OPTIONS = {"max_bytes": "TRACEKIT_MAX_BYTES", "min_free_bytes": "TRACEKIT_MIN_FREE_BYTES"}

_written: list[int] = []  # bytes of each recording of this process; appending is safe on any thread

__all__ = ["MAX_BYTES", "MIN_FREE_BYTES", "DiskBudget", "disk_budget_from_environment"]
__all__ += ["reset_written"]


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
