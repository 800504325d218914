"""Call a function once for each rank: in this process, or in worker processes."""

from __future__ import annotations

import enum
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, TypeVar

T = TypeVar("T")

Progress = Callable[[int, int], None]
"""Called with (ranks done, ranks in all): at the beginning and after each rank, never when there is none."""


class _Lost(enum.Enum):
    LOST = enum.auto()


LOST = _Lost.LOST
"""The result of a call that two workers did not survive."""


def processors() -> int:
    """Return how many processors this process may use; in a container these are fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def map_ranks(
    work: Callable[..., T],
    calls: Sequence[tuple[object, ...]],
    *,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> list[T | Literal[_Lost.LOST]]:
    """Return `[work(*call) for call in calls]`, computed in `jobs` processes.

    `jobs` is by default the number of processors; with one job the calls run in this process. `work` must stand at the
    top level of a module, and arguments and results must be picklable.

    A call whose worker dies is tried once more, alone, after all others: a worker that ran out of memory then has all
    of it. It is never tried in this process. If its second worker dies too, its result is `LOST`.
    """
    workers = min(jobs or processors(), len(calls))
    results: dict[int, T] = {}

    def collect(outcomes: Iterable[tuple[int, T]]) -> None:
        for position, result in outcomes:
            results[position] = result
            if progress is not None:
                progress(len(results), len(calls))

    if progress is not None and calls:
        progress(0, len(calls))

    if workers <= 1:
        collect((position, work(*call)) for position, call in enumerate(calls))
    else:
        # Imported here, because it takes 15 ms: a run that is small or in the cache needs no workers.
        from tracekit.loading.worker_processes import run_in_processes

        collect(run_in_processes(workers, work, calls))
    return [results.get(position, LOST) for position in range(len(calls))]
