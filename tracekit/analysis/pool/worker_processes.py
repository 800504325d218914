"""Calls in worker processes on this machine, each of which may die without costing the others their calls."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, ProcessPoolExecutor, wait
from contextlib import ExitStack, suppress
from multiprocessing.process import BaseProcess
from typing import TypeVar

from tracekit.errors import UsageError
from tracekit.process_tuning import tune_cli_process

T = TypeVar("T")

__all__ = ["run_in_processes"]


def run_in_processes(
    workers: int, work: Callable[..., T], calls: Sequence[tuple[object, ...]], positions: Sequence[int]
) -> Iterator[tuple[int, T]]:
    """Yield positions and results as calls finish, except calls that two processes did not survive.

    Raises UsageError when no process can be started.
    """
    lost: list[int] = []
    with ExitStack() as pools:
        idle = [WorkerProcess(pools) for _ in range(min(workers, len(positions)))]
        todo = iter(positions)
        running: dict[Future[T], tuple[int, WorkerProcess]] = {}
        any_started = False
        while True:
            while idle and (position := next(todo, None)) is not None:
                worker = idle.pop()
                running[worker.submit(work, *calls[position])] = position, worker
            if not running:
                break
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                position, worker = running.pop(future)
                everyone = [worker, *(busy for _, busy in running.values()), *idle]
                any_started = any_started or any(each.has_started() for each in everyone)
                if not any_started:
                    what, hint = "no worker process can start", "give --jobs 1; a script that asks for workers needs "
                    raise UsageError(what, hint=hint + 'the guard if __name__ == "__main__"')
                try:
                    result = future.result()
                except BrokenExecutor:
                    lost.append(position)
                else:
                    yield position, result
                idle.append(worker)
    for position in lost:
        with ExitStack() as pools, suppress(BrokenExecutor):
            yield position, WorkerProcess(pools).submit(work, *calls[position]).result()


def _begin_work() -> None:
    """Prepare a worker process: it must end when its parent ends, for whatever reason."""
    tune_cli_process()
    # Ctrl-C reaches all processes of a terminal: the worker then ends at once and prints nothing.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)


class WorkerProcess:
    """A process that runs one call after the other. When it dies, the next call starts a new one.

    One pool of several processes would not say which call broke it.
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
        """Return whether the process, dead or alive, reached its first task. Waits until that is known."""
        return self._first.exception() is None
