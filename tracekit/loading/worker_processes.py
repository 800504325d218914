"""Worker processes, each of which may die without costing the others their calls.

This process starts no thread for them: where memory is short (`ulimit -v`), a thread that cannot start would leave an
executor of the standard library waiting for ever.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any, Self, TypeVar

from tracekit.errors import UsageError
from tracekit.process_tuning import tune_cli_process

T = TypeVar("T")

_READY = b"ready"
_END_S = 5.0


def run_in_processes(
    workers: int, work: Callable[..., T], calls: Sequence[tuple[object, ...]]
) -> Iterator[tuple[int, T]]:
    """Yield positions and results as calls finish, except calls that two processes did not survive.

    Raises UsageError when no process can be started, and what the work raises.
    """
    lost: list[int] = []
    any_started = False
    with ExitStack() as at_end:
        idle = [at_end.enter_context(WorkerProcess()) for _ in range(workers)]
        todo = list(reversed(range(len(calls))))
        running: dict[Any, tuple[int, WorkerProcess]] = {}  # by what `wait` returns, a connection
        while running or (idle and todo):
            while idle and todo:
                worker, position = idle.pop(), todo.pop()
                try:
                    running[worker.begin(work, calls[position])] = position, worker
                except _CannotStartError:  # nor could the next one
                    lost.append(position)
            for connection in wait(list(running)) if running else []:  # of no connection it would wait for ever
                position, worker = running[connection]
                try:
                    outcome = worker.receive()
                except _DiedError:
                    lost.append(position)
                else:
                    any_started = True
                    if outcome is None:
                        continue
                    yield position, outcome.result()
                del running[connection]
                if worker.has_started and todo:
                    idle.append(worker)
                else:
                    worker.dismiss()
        lost += reversed(todo)
    if lost and not any_started:
        hint = 'give --jobs 1; a script that asks for workers needs the guard if __name__ == "__main__"'
        raise UsageError("no worker process can start", hint=hint)
    for position in lost:
        with WorkerProcess() as worker, suppress(_CannotStartError, _DiedError):
            worker.begin(work, calls[position])
            while (outcome := worker.receive()) is None:
                pass
            yield position, outcome.result()


class _CannotStartError(Exception):
    pass


class _DiedError(Exception):
    pass


class WorkerProcess:
    """A process that runs one call after the other. The first call starts it; when it has died, the next one does."""

    def __init__(self) -> None:
        self.has_started = False
        self._process: BaseProcess | None = None
        self._connection: Connection | None = None
        self._is_busy = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the process. It does not finish its call."""
        if self._process is not None and self._is_busy:
            self._process.terminate()
        self._end()

    def begin(self, work: Callable[..., Any], call: tuple[object, ...]) -> Connection:
        """Begin a call, whose outcome `receive` returns once there is something to read from this connection.

        Raises _CannotStartError when no process can be started.
        """
        connection = self._connection or self._start()
        self._is_busy = True
        with suppress(ConnectionError):  # it has died, as `receive` will find
            connection.send_bytes(pickle.dumps((work, call), pickle.HIGHEST_PROTOCOL))
        return connection

    def receive(self) -> _Outcome | None:
        """Return what the call came to; None when the process says that it has started. Raises _DiedError."""
        assert self._connection is not None
        try:
            message = self._connection.recv_bytes()
        except (EOFError, ConnectionError):
            self._end()
            raise _DiedError from None
        if message == _READY:
            self.has_started = True
            return None
        self._is_busy = False
        return _Outcome(*pickle.loads(message))  # noqa: S301 (only processes that this one has started write there)

    def dismiss(self) -> None:
        """Let the process end by itself, without waiting for it: it gets no other call."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _start(self) -> Connection:
        # Forking a process that has threads can hang its child; a fresh interpreter costs 0.2 s a worker, once.
        context = multiprocessing.get_context("spawn")
        try:
            self._connection, of_worker = context.Pipe()
            process = context.Process(target=_run_calls, args=(of_worker,), daemon=True)
            resource_tracker.ensure_running()  # which `start` would do, and unblock the signal
            # Ctrl-C reaches all processes of a terminal. In one that imports it would show as a traceback.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            try:
                process.start()
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
                of_worker.close()
        except OSError as error:
            self._end()
            raise _CannotStartError from error
        self._process = process
        return self._connection

    def _end(self) -> None:
        self.dismiss()
        if self._process is not None:
            self._process.join(_END_S)
            self._process.kill()
            self._process.join()
        self._process = None
        self._is_busy = False


@dataclass(frozen=True)
class _Outcome:
    """What a call returned; `error` is what it raised instead."""

    value: Any
    error: Exception | None

    def result(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.value


def _run_calls(connection: Connection) -> None:
    """Run the calls that arrive until the connection is closed. This is all that a worker process does."""
    _begin_work()
    connection.send_bytes(_READY)
    with suppress(EOFError, ConnectionError):
        while True:
            connection.send_bytes(_run_call(connection.recv_bytes()))


def _run_call(message: bytes) -> bytes:
    """Return the packed outcome of a packed call."""
    try:
        work, call = pickle.loads(message)  # noqa: S301 (the process that started this one has written it)
        return pickle.dumps((work(*call), None), pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        with suppress(Exception):  # some exceptions take no notes
            error.add_note("".join(traceback.format_exception(error)))  # a traceback itself cannot be sent
        try:
            message = pickle.dumps((None, error), pickle.HIGHEST_PROTOCOL)
            pickle.loads(message)  # noqa: S301 (some exceptions can be packed and not unpacked)
        except Exception:
            message = pickle.dumps((None, RuntimeError(f"{type(error).__name__}: {error}")))
        return message


def _begin_work() -> None:
    """Prepare a worker process: it must end when its parent ends, for whatever reason."""
    tune_cli_process()
    # The worker ends at once with Ctrl-C and prints nothing, also for one that came while it was blocked.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    parent = multiprocessing.parent_process()
    if parent is not None:
        with suppress(RuntimeError):  # no memory for a thread: then it ends after its call
            threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)
