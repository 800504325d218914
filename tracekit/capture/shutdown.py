"""Notices that a training loop ends, so that an open window is written in time.

A loop can end in four ways. The process exits (`atexit`; children of multiprocessing run its finalizers instead). The
thread of the loop ends. The process group is destroyed. SIGTERM arrives.

The handler of SIGTERM is installed only while a window is open. If the program has a handler, that is called as before,
and the window is closed by the next call or at exit. Otherwise the window is flushed at once, and the signal then kills
the process. Python runs handlers between bytecodes, so a thread blocked in a collective has to return from it first.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing.util
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from tracekit.capture.hooks.patching import Patch

__all__ = ["ExitHooks", "SigtermHandler"]


class ExitHooks:
    """Calls `finish` once, at the exit of this process or before its process group is destroyed."""

    def __init__(self, finish: Callable[[], None]) -> None:
        self._finish = finish
        self._pid: int | None = None
        self._undo = contextlib.ExitStack()  # runs its other callbacks when one fails
        self._thread_exit = threading.local()

    def install(self) -> None:
        self._pid = os.getpid()
        if threading.current_thread() is not threading.main_thread():
            self._thread_exit.guard = _ThreadExitGuard(self._at_exit)
        self._undo.callback(atexit.unregister, self._at_exit)
        atexit.register(self._at_exit)
        # With a priority, as finalizers without one do not run in children.
        self._undo.callback(multiprocessing.util.Finalize(None, self._at_exit, exitpriority=100).cancel)
        distributed = sys.modules.get("torch.distributed")
        if distributed is not None and distributed.is_available():
            # Two names of one function; users call either.
            for owner in (distributed, distributed.distributed_c10d):
                patch = Patch(owner, "destroy_process_group", self._before_destruction, lasting=True)
                self._undo.callback(patch.remove)
                patch.apply()

    def remove(self) -> None:
        self._undo.close()

    def _at_exit(self) -> None:
        if os.getpid() == self._pid:  # a forked child inherits the list, but not the recording
            self._finish()

    def _before_destruction(self, destroy: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        group = args[0] if args else kwargs.get("group")
        # A group of some ranks may be created and destroyed within a step.
        if group is None or group is sys.modules["torch.distributed"].GroupMember.WORLD:
            self._at_exit()
        destroy(*args, **kwargs)


class _ThreadExitGuard:
    """Calls `finish` when the thread ends that keeps it in its thread-local storage.

    It runs on that thread, where the profiler has to be stopped: else the process crashes at exit.
    """

    def __init__(self, finish: Callable[[], None]) -> None:
        self._finish = finish

    def __del__(self) -> None:
        self._finish()


class SigtermHandler:
    """Writes the open window when SIGTERM arrives.

    `flush` writes what there is and returns whether it could. It cannot while the probe itself is interrupted; the
    probe then calls `deliver_deferred` when it has finished.

    Attributes:
        requested: whether SIGTERM has arrived.
    """

    def __init__(self, flush: Callable[[], bool]) -> None:
        self._flush = flush
        self._pid: int | None = None
        self._previous: Any = None
        self._installed = False
        self._deferred = False
        self.requested = False

    def install(self) -> None:
        if self._installed or threading.current_thread() is not threading.main_thread():
            return
        previous = signal.getsignal(signal.SIGTERM)
        if previous is None or previous is signal.SIG_IGN:  # None: a handler in C, which must stay
            return
        self._previous, self._pid = previous, os.getpid()
        signal.signal(signal.SIGTERM, self._on_signal)
        self._installed = True

    def remove(self) -> None:
        if not self._installed or threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGTERM) == self._on_signal:
            signal.signal(signal.SIGTERM, self._previous)
        self._installed = False

    def deliver_deferred(self) -> None:
        """Flush and terminate if a signal asked for it while the probe was busy."""
        if self._deferred:
            self._deferred = False
            self._flush()
            self._terminate()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._pid:
            self._terminate()
            return
        self.requested = True
        if callable(self._previous):
            self._previous(number, frame)
        elif self._flush():
            self._terminate()
        else:
            self._deferred = True

    def _terminate(self) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if not callable(self._previous) else self._previous)
        os.kill(os.getpid(), signal.SIGTERM)
