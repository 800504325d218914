"""The fan-out over ranks: one call a rank, here, in worker processes or on an executor.

Comes in: a function at the top level of a module and a tuple of picklable arguments a rank. Goes out: its results, in
the order of the calls; for a call that two workers did not survive, `LOST`.
"""

from __future__ import annotations

import enum
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    as_completed,
    wait,
)
from contextlib import ExitStack, suppress
from multiprocessing.process import BaseProcess
from typing import Literal, TypeVar

from tracekit import __version__
from tracekit.analysis.pool.dask_cluster import worker_deaths
from tracekit.errors import InputError, UsageError
from tracekit.process_tuning import make_quick

T = TypeVar("T")

Progress = Callable[[int, int], None]
"""Called with (ranks done, ranks in all)."""


class _Lost(enum.Enum):
    LOST = enum.auto()


LOST = _Lost.LOST
"""In the place of a result: whoever worked on the call died, and so did who tried again."""

__all__ = ["LOST", "Progress", "map_ranks", "processors"]


def processors() -> int:
    """Processors that this process may use, which in a container are fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def map_ranks(
    work: Callable[..., T],
    calls: Sequence[tuple[object, ...]],
    *,
    jobs: int | None = None,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> list[T | Literal[_Lost.LOST]]:
    """`[work(*call) for call in calls]`, on `executor`, or `jobs` at a time (default: `processors()`), in this process
    if that is one.

    A call whose worker dies is tried once more when all others are done, alone: what died for want of memory then has
    all of it. It never comes to this process. An executor that breaks as a whole is replaced by worker processes.
    """
    workers = min(jobs or processors(), len(calls))
    results: dict[int, T] = {}

    def collect(outcomes: Iterable[tuple[int, T]]) -> None:
        for position, result in outcomes:
            results[position] = result
            if progress is not None:
                progress(len(results), len(calls))

    def left() -> list[int]:
        return [position for position in range(len(calls)) if position not in results]

    if executor is not None:
        try:
            collect(_on_executor(executor, work, calls, left()))
            for position in left():
                collect(_on_executor(executor, work, calls, [position]))
        except BrokenExecutor:
            collect(_in_processes(workers, work, calls, left()))
    elif workers > 1:
        collect(_in_processes(workers, work, calls, left()))
    else:
        collect((position, work(*call)) for position, call in enumerate(calls))
    return [results.get(position, LOST) for position in range(len(calls))]


def _on_executor(
    executor: Executor, work: Callable[..., T], calls: Sequence[tuple[object, ...]], positions: Iterable[int]
) -> Iterator[tuple[int, T]]:
    """Results as they come, none of a call whose worker died. Raises BrokenExecutor, behind the last result."""
    broken: BrokenExecutor | None = None
    waiting: dict[Future[T], int] = {}
    try:
        for position in positions:
            waiting[executor.submit(_of_one_version, __version__, work, *calls[position])] = position
        for future in as_completed(waiting):
            position = waiting.pop(future)
            try:
                result = future.result()
            except BrokenExecutor as error:
                broken = error
            except worker_deaths():
                continue
            except CancelledError:
                hint = "its scheduler may have gone away; start it again"
                raise InputError("the executor gave up before all ranks were read", hint=hint) from None
            else:
                yield position, result
    finally:
        for future in waiting:
            future.cancel()
    if broken is not None:
        raise broken


def _of_one_version(version: str, work: Callable[..., T], *call: object) -> T:
    """Run by a worker, which may live in another installation than who asks."""
    if version != __version__:
        what = f"a worker has tracekit {__version__}, this one is {version}: their results would not fit together"
        raise UsageError(what, hint=f"where the workers run: pip install torch-tracekit=={version}")
    return work(*call)


def _in_processes(
    workers: int, work: Callable[..., T], calls: Sequence[tuple[object, ...]], positions: Sequence[int]
) -> Iterator[tuple[int, T]]:
    """Results as they come, none of a call whose process died twice. Raises UsageError when none can be started."""
    lost: list[int] = []
    with ExitStack() as pools:
        idle = [_Lane(pools) for _ in range(min(workers, len(positions)))]
        todo = iter(positions)
        running: dict[Future[T], tuple[int, _Lane]] = {}
        any_started = False
        while True:
            while idle and (position := next(todo, None)) is not None:
                lane = idle.pop()
                running[lane.submit(work, *calls[position])] = position, lane
            if not running:
                break
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                position, lane = running.pop(future)
                lanes = [lane, *(busy for _, busy in running.values()), *idle]
                any_started = any_started or any(lane.has_started() for lane in lanes)
                if not any_started:
                    what, hint = "no worker process can start", "give --jobs 1; a script that asks for workers needs "
                    raise UsageError(what, hint=hint + 'the guard if __name__ == "__main__"')
                try:
                    result = future.result()
                except BrokenExecutor:
                    lost.append(position)
                else:
                    yield position, result
                idle.append(lane)
    for position in lost:
        with ExitStack() as pools, suppress(BrokenExecutor):
            yield position, _Lane(pools).submit(work, *calls[position]).result()


def _begin_work() -> None:
    """Run by a worker first: it is to end with its parent, however that ends."""
    make_quick()
    # Ctrl-C reaches all processes of a terminal: the worker then ends at once, and says nothing.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)


class _Lane:
    """A process that takes one call after the other, and another one once it has died.

    A pool of several that breaks does not tell which call broke it.
    """

    def __init__(self, pools: ExitStack) -> None:
        self._pools = pools
        self._start()

    def _start(self) -> None:
        # Forking a process that has threads can hang its child; a fresh interpreter costs 0.2 s a worker, once.
        context = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(1, context, initializer=_begin_work)
        self._pool = self._pools.enter_context(pool)
        self._first = self._pool.submit(os.getpid)

    def submit(self, work: Callable[..., T], *call: object) -> Future[T]:
        try:
            return self._pool.submit(work, *call)
        except BrokenExecutor:
            self._start()
            return self._pool.submit(work, *call)

    def has_started(self) -> bool:
        """Whether the process, dead or alive, came to its first task. Waits until that is known."""
        return self._first.exception() is None
