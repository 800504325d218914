"""The fan-out over ranks: one call a rank, here or in worker processes.

Comes in: a function at the top level of a module and a tuple of picklable arguments a rank. Goes out: its results, in
the order of the calls.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

T = TypeVar("T")

Progress = Callable[[int, int], None]
"""Called with (ranks done, ranks in all)."""

__all__ = ["Progress", "map_ranks", "processors"]


def processors() -> int:
    """Processors that this process may use, which in a container are fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def map_ranks(
    work: Callable[..., T],
    calls: Sequence[tuple[object, ...]],
    *,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> list[T]:
    """`[work(*call) for call in calls]`, `jobs` at a time (default: `processors()`), in this process if that is one.

    A pool that breaks is replaced by this process for the calls that had no result.
    """
    workers = min(jobs or processors(), len(calls))
    results: dict[int, T] = {}
    if workers > 1:
        # Forking a process that has threads can hang its child; a fresh interpreter costs 0.2 s a worker, once.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(workers, mp_context=context) as pool:
            _collect(pool, work, calls, results, progress)
    for position, call in enumerate(calls):
        if position not in results:
            results[position] = work(*call)
            if progress is not None:
                progress(len(results), len(calls))
    return [results[position] for position in range(len(calls))]


def _collect(
    pool: Executor,
    work: Callable[..., T],
    calls: Sequence[tuple[object, ...]],
    results: dict[int, T],
    progress: Progress | None,
) -> None:
    waiting = {pool.submit(work, *call): position for position, call in enumerate(calls)}
    for future in as_completed(waiting):
        try:
            results[waiting[future]] = future.result()
        except BrokenProcessPool:
            return
        if progress is not None:
            progress(len(results), len(calls))
