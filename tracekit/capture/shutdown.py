"""The ways in which a training loop ends, so that an open window is written before it is too late.

A process exits (`atexit`; children of multiprocessing run its finalizers instead), the thread of the loop ends, the
process group is destroyed, or SIGTERM arrives. A handler of SIGTERM is only there while a window is open. One that was
there before is called as ever, and the window is closed by the next call or at exit. Without one the window is flushed
at once and the signal then kills the process as it would have; Python runs handlers between bytecodes, so a thread that
is blocked in a collective first has to come out of it.
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
        self._undo = contextlib.ExitStack()  # runs the rest of it when a part fails
        self._thread_exit = threading.local()

    def install(self) -> None:
        self._pid = os.getpid()
        if threading.current_thread() is not threading.main_thread():
            self._thread_exit.guard = _ThreadExitGuard(self._at_exit)
        self._undo.callback(atexit.unregister, self._at_exit)
        atexit.register(self._at_exit)
        # A priority: finalizers without one are not run in children.
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
        # A group of some ranks may come and go within a step.
        if group is None or group is sys.modules["torch.distributed"].GroupMember.WORLD:
            self._at_exit()
        destroy(*args, **kwargs)


class _ThreadExitGuard:
    """Lives in a thread's own storage, so it dies with the thread and on it: the profiler has to be stopped there, and
    the process would crash at its exit if it was not."""

    def __init__(self, finish: Callable[[], None]) -> None:
        self._finish = finish

    def __del__(self) -> None:
        self._finish()


class SigtermHandler:
    """SIGTERM while a window is open. `requested` is the flag; `flush` writes what there is and says whether it could:
    not while the probe itself was interrupted, which then calls `deliver_deferred` when it is done."""

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
        if previous is None or previous is signal.SIG_IGN:  # None: set by C code, and not ours to replace
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
        """Do now what a signal asked for while the probe was busy."""
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
