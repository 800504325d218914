"""Asks the job's key-value store on a separate thread, so that no caller waits longer than its limit.

The time-outs of torch's stores are not reliable. A call to a TCPStore whose server is stopped, or behind a dead link,
blocks until the connection dies, and so does opening another connection. A client is locked during a call. So a second
client is used here: the job's calls never queue up behind those of the capture. It is one more connection and not
several, as the server looks up the name of each new peer and answers nobody meanwhile.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, TypeVar

T = TypeVar("T")

TOTAL_TIMEOUT_S = 2.0  # for all questions together that are not answered in time

__all__ = ["TOTAL_TIMEOUT_S", "BoundedStore"]


class BoundedStore:
    """The job's store with limits: after `close()`, or when the total time-out is used up, `ask()` raises at once."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._time_left_s = TOTAL_TIMEOUT_S
        self._questions: queue.SimpleQueue[tuple[Future[Any], Callable[[Any], Any]] | None] = queue.SimpleQueue()
        # A daemon, as a call may never return. Started now, as no thread can be started when the process exits.
        self._worker = threading.Thread(target=self._answer, name="tracekit-store", daemon=True)
        try:
            self._worker.start()
        except RuntimeError:
            self._time_left_s = 0.0

    @property
    def is_alive(self) -> bool:
        return self._worker.is_alive()

    @property
    def has_given_up(self) -> bool:
        """Whether no further question will be answered."""
        return self._time_left_s <= 0

    def ask(self, question: Callable[[Any], T], limit_s: float) -> T:
        """Return or raise what `question(store)` does; raises TimeoutError if that takes longer than `limit_s`."""
        answer: Future[T] = Future()
        limit_s = min(limit_s, self._time_left_s)
        if limit_s <= 0:
            raise TimeoutError("the job's store does not answer")
        self._questions.put((answer, question))
        begin = time.monotonic()
        try:
            return answer.result(limit_s)
        except FutureTimeoutError:
            if not answer.done():
                answer.cancel()  # if it still waits in the queue, it is never asked
                self._time_left_s -= time.monotonic() - begin
            raise

    def post(self, question: Callable[[Any], T]) -> Future[T]:
        """Have `question(store)` run later; nobody waits for it. After `close()` it is never run."""
        answer: Future[T] = Future()
        self._questions.put((answer, question))
        return answer

    def close(self) -> None:
        """Give the connection back; may be called again."""
        self._time_left_s = 0.0
        self._questions.put(None)

    def _answer(self) -> None:
        try:
            store, connect_error = _second_client(self._store), None
        except Exception as error:
            store, connect_error = None, error
        while (request := self._questions.get()) is not None:
            answer, question = request
            if not answer.set_running_or_notify_cancel():
                continue
            try:
                if connect_error is not None:
                    raise connect_error
                answer.set_result(question(store))
            except Exception as error:
                answer.set_exception(error)
            del answer, question, request  # else the last question lives as long as the thread


def _second_client(store: Any) -> Any:
    """Return another connection to a TCPStore; other stores are in memory or a file, and returned as they are.

    Before torch 2.8 a client cannot be cloned. Another one is opened there, without the prefixes of `store`: the keys
    of the capture have their own.
    """
    innermost = store
    while type(innermost).__name__ == "PrefixStore":
        innermost = innermost.underlying_store
    if type(innermost).__name__ != "TCPStore":
        return store
    if hasattr(store, "clone"):
        return store.clone()
    return type(innermost)(innermost.host, innermost.port, is_master=False, wait_for_workers=False)
