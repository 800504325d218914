"""Runs torch.profiler for one window: prepare, start, stop, export. It never runs beside another profiler.

torch has one profiler in a process. A second one takes the events of the first without an exception, and two at once in
two threads crash. So nothing is recorded while another profiler is prepared or running, and a recording ends when
another profiler starts.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any, Protocol

from tracekit.capture.hooks.live_objects import LiveObjects
from tracekit.capture.hooks.patching import Patch
from tracekit.capture.job.rpc_worker import rpc_ready

_AUTOGRAD_COLLECTIVES = "torch.distributed.nn.functional"
_POLL_S = 0.01


class ProfilerUser(Protocol):
    """Who may use torch's profiler."""

    def end_full_window(self) -> None:
        """End a window that has all its steps, and waits for the next call."""


_users: dict[str, ProfilerUser] = {}  # the one of this process; a dictionary, as its methods are atomic


def acquire_profiler(user: ProfilerUser) -> bool:
    """Return whether `user` may use the profiler until it releases it. The full window of another user ends."""
    holder = _users.get("profiler", user)
    if holder is not user:
        holder.end_full_window()
    return _users.setdefault("profiler", user) is user


def release_profiler(user: ProfilerUser) -> None:
    if _users.get("profiler") is user:
        del _users["profiler"]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_users.clear)


def why_nothing_is_recorded() -> str | None:
    """Return why torch cannot record in this process, in words, or None. It imports torch's profiler."""
    try:
        import torch.profiler
    except ImportError:
        return "torch is not installed, so nothing is recorded"
    if not torch.profiler.kineto_available():
        return "this build of torch has no profiler (Kineto), so nothing is recorded"
    return None


def other_profiler(objects: LiveObjects) -> str | None:
    """Return which other profiler is active in this process, in words, or None."""
    torch = sys.modules["torch"]
    if torch.autograd._profiler_enabled() or torch.autograd.profiler._is_profiler_enabled:
        return "a profiler is already running in this process"
    for profiler in objects.instances("torch.profiler.profiler", "profile"):
        backend = getattr(profiler, "profiler", None)
        warming_up = getattr(profiler, "current_action", None) == torch.profiler.ProfilerAction.WARMUP
        # Prepared and not yet stopped: torch does not report this, and a second profiler would replace it.
        if warming_up and backend is not None and backend.kineto_results is None:
            return "a torch.profiler schedule is in its warm-up in this process"
    return None


class ProfilerSession:
    """The profiler of one window.

    `on_other_profiler` is called when another profiler is about to start, at most once.
    """

    def __init__(self, options: dict[str, bool], on_other_profiler: Callable[[], None]) -> None:
        torch = sys.modules["torch"]
        self._on_other_profiler = on_other_profiler
        self._profiler = torch.profiler.profile(**options, experimental_config=_trace_only_config(options))
        self._other_prepare = Patch(torch.autograd.profiler.profile, "_prepare_trace", self._before_other_starts)
        self._other_start = Patch(torch.autograd.profiler.profile, "_start_trace", self._before_other_starts)
        self._thread: int | None = None
        self.running = False
        self.prepared = False

    def prepare(self) -> None:
        """Set up buffers and device tracing; nothing is recorded yet."""
        self._thread = threading.get_ident()
        self._prepare()
        self.prepared = True
        self._watch_for_others()

    def start(self) -> None:
        self._stop_watching()
        if not self.prepared:
            self._thread = threading.get_ident()
            self._prepare()
            self.prepared = True
        self._profiler.start_trace()
        self.running = True
        self._watch_for_others()

    def wait_for_device(self, limit_s: float, *, failing: bool) -> bool:
        """Wait until the device has done what this thread queued, at most `limit_s`; return whether it has.

        torch synchronises all of the device as its profiler stops, without a limit. After an error a queue may hold a
        collective whose peers never come. So a program that fails, or waits for too long, stops without it: Kineto's
        stop then takes what CUPTI has and waits for no kernel. The profiler is stopped in any case, as the process
        would crash at exit.
        """
        backend = self._profiler.profiler
        device = getattr(sys.modules["torch"], getattr(backend, "use_device", None) or "", None)
        deadline_s = time.monotonic() + limit_s
        while not (is_done := _is_done(device)) and time.monotonic() < deadline_s:
            time.sleep(_POLL_S)
        if failing or not is_done:
            backend.use_device = None
        return is_done

    def stop(self) -> None:
        """End the recording, or the warm-up; may be called again after a failure.

        Raises RuntimeError on another thread than that of `start`.
        """
        if self._thread not in {None, threading.get_ident()}:
            raise RuntimeError("the recording was started on another thread")
        try:
            self._stop_watching()
        finally:
            if self.prepared and not self.running:
                self._profiler.start_trace()  # a prepared profiler must be started before it can be stopped
                self.running = True
            if self.prepared:
                self._profiler.stop_trace()
                self.prepared = self.running = False

    def after_fork(self) -> None:
        """In a forked child: have torch call no profiler on this thread any more.

        The child's copy of the profiler would go on collecting events in memory. It cannot be stopped, as its threads
        exist in the parent only.
        """
        self._stop_watching()
        if self.running:
            sys.modules["torch"]._C._autograd._enable_record_function(False)

    def export(self, path: Path) -> None:
        """Write plain Chrome JSON. torch reports no failure: the caller checks the file.

        torch's events are freed here. It takes a tenth of the time of the stop and holds Python's lock, so in the
        background it would hold up a step.
        """
        try:
            self._profiler.export_chrome_trace(str(path))
        finally:
            self._profiler.profiler = None

    def _prepare(self) -> None:
        """Prepare torch's profiler without keeping the default process group alive.

        torch's profiler imports a module whose functions have the default process group as a default argument. Loaded
        before the group exists, they have None, which means the same. Loaded now, they would keep the group alive after
        its destruction, and its Gloo threads sometimes abort the process at exit.
        """
        was_imported = _AUTOGRAD_COLLECTIVES in sys.modules
        with warnings.catch_warnings():
            # torch 2.12 says it of the first cycle, too. Where warnings are errors, nothing would be recorded.
            warnings.filterwarnings("ignore", message="Warning: Profiler clears events")
            self._profiler.prepare_trace()
        module = sys.modules.get(_AUTOGRAD_COLLECTIVES)
        if was_imported or module is None:
            return
        world = sys.modules["torch.distributed"].group.WORLD
        for function in vars(module).values():
            if isinstance(function, FunctionType) and function.__defaults__:
                function.__defaults__ = tuple(None if value is world else value for value in function.__defaults__)

    def _watch_for_others(self) -> None:
        self._other_prepare.apply()
        self._other_start.apply()

    def _stop_watching(self) -> None:
        self._other_start.remove()
        self._other_prepare.remove()

    def _before_other_starts(self, begin: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._stop_watching()
        self._on_other_profiler()
        return begin(*args, **kwargs)


def _is_done(device: Any) -> bool:
    """Return whether `device`, torch's module of it, has done what is queued on the current stream.

    True for a device that cannot be asked, or that answers with an error: torch's own stop meets that, too.
    """
    with contextlib.suppress(Exception):
        return bool(device.current_stream().query())
    return True


def _trace_only_config(options: dict[str, bool]) -> Any | None:
    """Return options of newer torch versions, or None.

    Only the trace is needed, so the list of events in Python is not built. A worker of RPC runs what it serves on
    threads that torch records only on request.
    """
    configure = sys.modules["torch"]._C._profiler._ExperimentalConfig
    trace_only = {} if options.get("with_stack") else {"trace_only": True}
    all_threads = {"profile_all_threads": True} if rpc_ready() else {}
    for supported in ({**all_threads, **trace_only}, all_threads, trace_only):
        with contextlib.suppress(TypeError):  # this version lacks an option
            return configure(**supported) if supported else None
    return None
