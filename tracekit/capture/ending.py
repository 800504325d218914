"""How a recording ends with its program, so that an open window is written.

A loop can end in four ways. The process exits (`atexit`; children of multiprocessing run its finalizers instead). The
thread of the loop ends. The process group is destroyed. SIGTERM arrives.

The handler of SIGTERM is installed only while a window is open or being written. If the program has a handler, that is
called as before, and the window is closed by the next call or at exit. Otherwise the window is flushed at once, and the
signal then kills the process.

Python runs handlers between bytecodes of the main thread. Without the handler the signal would end a main thread that
is blocked in C, for example in a wait for the device. So another thread hears of the signal through the wake-up file
descriptor, and ends the process if the handler has not begun to flush within `LIMIT_S`.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import multiprocessing.util
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from tracekit.capture.hooks.patching import Patch, hide_this_frame

LIMIT_S = 3.0


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


class SigtermHandler:
    """Handles SIGTERM between `install` and `remove`, on the main thread.

    `flush` writes what there is and returns whether it could. It cannot while the probe itself is interrupted; the
    probe then calls `deliver_deferred` when it has finished.

    Attributes:
        requested: whether SIGTERM has arrived.
        installed: whether the signal comes here.
    """

    def __init__(self, flush: Callable[[], bool]) -> None:
        self._flush = flush
        self._pid: int | None = None
        self._previous: Any = None
        self.installed = False
        self._deferred = False
        self._watch: _BlockedThreadWatch | None = None
        self.requested = False

    def install(self) -> None:
        if self.installed or threading.current_thread() is not threading.main_thread():
            return
        previous = signal.getsignal(signal.SIGTERM)
        if previous is None or previous is signal.SIG_IGN:  # None: a handler in C, which must stay
            return
        self._previous, self._pid = previous, os.getpid()
        signal.signal(signal.SIGTERM, self._on_signal)
        self.installed = True
        if not callable(previous):  # else the signal waits for the main thread without us, too
            with contextlib.suppress(Exception):  # too many files or threads
                self._watch = _BlockedThreadWatch.begin()

    def remove(self) -> None:
        if not self.installed or threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGTERM) == self._on_signal:
            signal.signal(signal.SIGTERM, self.handler_before())
        self.installed = False
        watch, self._watch = self._watch, None
        if watch is not None:
            with contextlib.suppress(Exception):  # what stays does nothing without the handler
                watch.end()

    def handler_before(self) -> Any:
        """Return the handler to restore. That of another probe is passed over if the probe has ended meanwhile."""
        owner = getattr(self._previous, "__self__", None)
        if isinstance(owner, SigtermHandler) and not owner.installed:
            return owner.handler_before()
        return self._previous

    def deliver_deferred(self) -> None:
        """Flush and terminate if a signal asked for it while the probe was busy."""
        if self._deferred:
            self._deferred = False
            self._flush_now()
            self._terminate()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._pid:
            self._terminate()
            return
        self.requested = True
        if callable(previous := self.handler_before()):
            try:
                previous(number, frame)
            except BaseException:
                hide_this_frame()
                raise
        elif self._flush_now():
            self._terminate()
        else:
            self._deferred = True

    def _flush_now(self) -> bool:
        watch = self._watch
        if watch is None:
            return self._flush()
        watch.answered.set()
        if self._flush():
            return True
        watch.answered.clear()  # the probe is at work, where it may be blocked as well
        return False

    def _terminate(self) -> None:
        previous = self.handler_before()
        signal.signal(signal.SIGTERM, previous if callable(previous) else signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)


class _BlockedThreadWatch:
    """Ends the process if the main thread does not begin to flush in time after SIGTERM.

    Attributes:
        answered: set when the main thread flushes, or no longer listens.
    """

    def __init__(self, ours: socket.socket, woken: socket.socket) -> None:
        self.answered = threading.Event()
        self._ours, self._woken = ours, woken
        self._thread = threading.Thread(target=self._run, name="tracekit-sigterm", daemon=True)

    @classmethod
    def begin(cls) -> _BlockedThreadWatch | None:
        """Return a watch, or None if the program uses the descriptor itself. Raises if it cannot be started."""
        with contextlib.ExitStack() as undo:
            ours, woken = (undo.enter_context(end) for end in socket.socketpair())
            ours.setblocking(False)  # Python writes to it in the handler
            previous = signal.set_wakeup_fd(ours.fileno(), warn_on_full_buffer=False)
            undo.callback(signal.set_wakeup_fd, previous)
            if previous != -1:
                return None
            watch = cls(ours, woken)
            watch._thread.start()
            undo.pop_all()
            return watch

    def end(self) -> None:
        """Give the descriptor back, unless the program has taken it meanwhile. In a forked child the thread is gone."""
        self.answered.set()
        number = self._ours.fileno()
        current = signal.set_wakeup_fd(-1)
        if current not in {-1, number}:
            signal.set_wakeup_fd(current)
        self._ours.close()  # the thread reads the end of the stream
        if not self._thread.is_alive():
            self._woken.close()

    def _run(self) -> None:
        with self._woken:
            while received := self._woken.recv(64):
                if signal.SIGTERM in received and not self.answered.wait(LIMIT_S):
                    # As `signal.signal(SIGTERM, SIG_DFL)`, which Python allows on the main thread only.
                    ctypes.pythonapi.PyOS_setsig(signal.SIGTERM, None)
                    os.kill(os.getpid(), signal.SIGTERM)
