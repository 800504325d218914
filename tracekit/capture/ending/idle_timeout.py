"""Ends a recording whose training loop has stopped calling.

A timer is armed when a call has returned, disarmed when the next one begins, and ended with the recording. When it has
run out, `on_timeout` is called on the main thread, because torch's profiler must be stopped on the thread that started
it. It is called between two bytecodes of whatever the program does by then. If the program is at a place where the
recording cannot end, `on_timeout` is called again later.

To run on the main thread, it makes Python call the handler of a signal that has no other use and that no process sends.
So system calls are not interrupted, and exceptions of the program's handlers reach the program. A signal handler runs
on the main thread only: a recording on another thread stays open until the next call, or the end of that thread.
"""

from __future__ import annotations

import _thread
import contextlib
import logging
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import cast

from tracekit.capture.hooks.autograd import runs_backward
from tracekit.capture.job.device import is_capturing_graph

POLL_S = 0.5
AFTER_LAST_STEP_S = 1.0  # when all planned steps have returned
BETWEEN_STEPS_S = 10.0
LONGEST_STEP_FACTOR = 5  # between steps wait for this many times the longest step

_CAPTURE = str(Path(__file__).parents[1])
# Their functions briefly hold locks that ending a recording may need.
_LOCKING_FILES = {threading.__file__, queue.__file__, logging.__file__}
_LOCKING_FILES |= {"<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>"}

__all__ = ["IdleTimeout", "idle_timeout_s"]


def idle_timeout_s(longest_step_ns: int, *, all_steps_returned: bool = False) -> float:
    """Return how long to wait for the next call, in seconds; `longest_step_ns` is the longest step so far."""
    longest_s = longest_step_ns / 1e9
    return (
        max(AFTER_LAST_STEP_S, longest_s)
        if all_steps_returned
        else max(BETWEEN_STEPS_S, LONGEST_STEP_FACTOR * longest_s)
    )


class IdleTimeout:
    """The timer of one recording on the main thread. All methods are called on that thread."""

    def __init__(self, on_timeout: Callable[[], None]) -> None:
        self._on_timeout = on_timeout
        self._pid = os.getpid()
        self._deadline_s: float | None = None  # of the monotonic clock
        self._ended = threading.Event()
        self._watcher: threading.Thread | None = None
        self._signal: signal.Signals | None = None

    @property
    def has_passed(self) -> bool:
        deadline_s = self._deadline_s
        return deadline_s is not None and time.monotonic() >= deadline_s

    def arm(self, seconds: float) -> None:
        self._deadline_s = time.monotonic() + seconds
        if self._watcher is None and (free := _unused_signal()) is not None:
            signal.signal(free, self._on_signal)
            self._signal = free
            # It polls twice a second: waking it would cost each step a lock and a switch of threads.
            self._watcher = threading.Thread(target=self._watch, name="tracekit-idle-timeout", daemon=True)
            with contextlib.suppress(RuntimeError):  # there are too many threads: the recording has no limit
                self._watcher.start()

    def disarm(self) -> None:
        self._deadline_s = None

    def end(self) -> None:
        self._deadline_s = None
        self._ended.set()
        self._give_signal_back()

    def after_fork(self) -> None:
        """In a forked child, which has no watcher thread: stop without touching its locks."""
        self._deadline_s = None
        self._give_signal_back()

    def _give_signal_back(self) -> None:
        number, self._signal = self._signal, None
        with contextlib.suppress(Exception):  # a handler that stays does nothing
            if number is not None and signal.getsignal(number) == self._on_signal:
                signal.signal(number, signal.SIG_DFL)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.has_passed and os.getpid() == self._pid and not sys.is_finalizing() and _may_stop_profiler(frame):
            self._on_timeout()

    def _watch(self) -> None:
        while not self._ended.wait(POLL_S):
            number = self._signal
            if number is not None and self.has_passed:
                _thread.interrupt_main(number)


def _unused_signal() -> signal.Signals | None:
    """Return a real-time signal without a handler, the highest that is free: others usually start at the lowest."""
    lowest, highest = getattr(signal, "SIGRTMIN", 0), getattr(signal, "SIGRTMAX", -1)
    unused = (number for number in range(highest, lowest, -1) if signal.getsignal(number) == signal.SIG_DFL)
    return cast("signal.Signals | None", next(unused, None))  # most have no name, and are plain numbers


def _may_stop_profiler(frame: FrameType | None) -> bool:
    """Return whether the profiler may be stopped while the program is interrupted in `frame`.

    It may not where locks are taken, in the capture's own code, in a backward pass, while something is compiled, or
    while a CUDA graph is captured.
    """
    place = "" if frame is None else frame.f_code.co_filename
    if place in _LOCKING_FILES or place.startswith(_CAPTURE):
        return False
    compilation = getattr(sys.modules.get("torch._guards"), "CompileContext", None)
    return (
        not runs_backward()
        and (compilation is None or compilation.current_compile_id() is None)
        and not is_capturing_graph()
    )
