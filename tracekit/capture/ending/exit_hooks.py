"""Notices that a training loop ends, so that an open window is written in time.

A loop can end in four ways. The process exits (`atexit`; children of multiprocessing run its finalizers instead). The
thread of the loop ends. The process group is destroyed. SIGTERM arrives (`sigterm.py`).
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import multiprocessing.util
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

from tracekit.capture.hooks.patching import Patch

__all__ = ["ExitHooks", "is_failing"]


def is_failing(*, at_exit: bool = False) -> bool:
    """Return whether the program is ending because of an error: one is on its way up, or at the exit nobody caught it.

    A leave with exit code 0 is no error.
    """
    errors = [sys.exc_info()[1]]
    if at_exit:  # else it may be an old one: an interactive session goes on after an error
        errors.append(getattr(sys, "last_value", None))
    return any(
        not isinstance(error, GeneratorExit | StopIteration | StopAsyncIteration)
        and not (isinstance(error, SystemExit) and error.code in {None, 0})
        for error in errors
        if error is not None
    )


class ExitHooks:
    """Calls `finish(is_failing)` at the exit of this process and before its process group is destroyed."""

    def __init__(self, finish: Callable[[Callable[[], bool]], None]) -> None:
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

    def _at_exit(self, *, at_exit: bool = True) -> None:
        if os.getpid() == self._pid:  # a forked child inherits the list, but not the recording
            self._finish(functools.partial(is_failing, at_exit=at_exit))

    def _before_destruction(self, destroy: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        group = args[0] if args else kwargs.get("group")
        # A group of some ranks may be created and destroyed within a step.
        if group is None or group is sys.modules["torch.distributed"].GroupMember.WORLD:
            self._at_exit(at_exit=False)
        destroy(*args, **kwargs)


class _ThreadExitGuard:
    """Calls `finish` when the thread ends that keeps it in its thread-local storage.

    It runs on that thread, where the profiler has to be stopped: else the process crashes at exit.
    """

    def __init__(self, finish: Callable[[], None]) -> None:
        self._finish = finish

    def __del__(self) -> None:
        self._finish()
