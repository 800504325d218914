"""The probe that a program holds: it counts calls, and passes those that matter to `Windows` and to the attempt's log.

No error of the capture reaches the training loop. It ends the probe and becomes a `CaptureWarning`.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar, cast

from tracekit.capture.default_observers import PROCESS_RECORDERS
from tracekit.capture.ending import ExitHooks, SigtermHandler, is_failing
from tracekit.capture.hooks.ddp_comm_hooks import wrap_new_hooks
from tracekit.capture.hooks.patching import hide_this_frame, warn
from tracekit.capture.hooks.torch_compile import hide_from_compiler
from tracekit.capture.job.attempt_log import AttemptLog
from tracekit.capture.output.paths import DiskBudget, disk_budget_from_environment
from tracekit.capture.schedule import NEVER, Schedule, StepNumbers, path_from_environment, schedule_from_environment
from tracekit.capture.step_wrappers import StepCalls, wrap_coroutine_function, wrap_function, wrap_generator_function
from tracekit.capture.windows import Windows

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_created: list[int] = []  # numbers of probes
_started_probes: weakref.WeakSet[Probe] = weakref.WeakSet()  # their copies in a forked child must stop


def probes_created() -> int:
    """Return how many probes this process has made."""
    return len(_created)


class Probe:
    """What the user's program holds and calls. Counts calls, and passes those that matter to `Windows`."""

    def __init__(
        self,
        path: Path,
        schedule: Schedule,
        options: dict[str, bool],
        watch: Sequence[Any],
        budget: DiskBudget,
        numbers: StepNumbers,
        quiet: bool,
    ) -> None:
        self._off = os.environ.get("TRACEKIT") == "0"
        if not self._off:
            hide_from_compiler()
            wrap_new_hooks()
        number = len(_created)  # by order of creation, so the same on all ranks of one program
        _created.append(number)
        path = path_from_environment(path, os.environ)
        budget = disk_budget_from_environment(budget, os.environ, warn)
        if not self._off:
            for recorder in PROCESS_RECORDERS:
                with contextlib.suppress(Exception):  # if it fails, what it would record is missing
                    recorder.probe_created(path, number, budget)
        self._windows = Windows(
            path,
            schedule_from_environment(schedule, os.environ, warn),
            options,
            watch,
            number=number,
            on_other_profiler=lambda: self._guarded(self._windows.yield_to_other_profiler),
            budget=budget,
            numbers=numbers,
            quiet=quiet,
        )
        self._numbers = numbers
        self._attempt_log = AttemptLog(path, self._windows.job, budget)
        self._calls = 0
        self._next_event = 0  # the next call that `Windows` or the log handles
        self._next_window_event = 0
        self._next_log_event = 0
        self._in_call = False
        self._is_rest = False  # whether the call that has begun is what follows the last `step()`
        self._busy = False
        self._thread: int | None = None  # that made the first call
        self._exit_hooks = ExitHooks(self._finish)
        self._sigterm = SigtermHandler(self._flush)

    def __call__(self, step: Callable[P, R]) -> Callable[P, R]:
        """Decorate a function, a coroutine function, or a generator function whose items are steps; or a method."""
        if self._off:
            return step
        if isinstance(step, classmethod | staticmethod):  # the function in it is called with its class, or as it is
            return cast("Callable[P, R]", type(step)(self(step.__func__)))
        calls = StepCalls(enter=self._enter, leave=self._leave, cancel=self._cancel)
        if inspect.isgeneratorfunction(step) or inspect.isasyncgenfunction(step):
            return cast("Callable[P, R]", wrap_generator_function(step, calls))
        if inspect.iscoroutinefunction(step):
            return cast("Callable[P, R]", wrap_coroutine_function(step, calls))
        return wrap_function(step, calls)

    def __enter__(self) -> Self:
        if not self._off:
            self._enter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._off:
            return
        self._leave(failed=kind is not None)
        self.finish()

    def step(self) -> None:
        """End a step and begin the next; for the context manager."""
        if not self._off:
            self._leave(failed=False)
            self._is_rest = self._enter()

    def iterate(self, loader: Iterable[T]) -> Iterator[T]:
        """Yield the items of `loader`; the time spent waiting for them is the current step's loading time."""
        items = iter(loader)
        while True:
            recording = self._windows.open_recording
            if recording is None:
                try:
                    item = next(items)
                except StopIteration:
                    return
                except BaseException:
                    hide_this_frame()
                    raise
            else:
                self._guarded(recording.log.begin_loading)
                loaded = False
                try:
                    item = next(items)
                    loaded = True
                except StopIteration:
                    return
                except BaseException:
                    hide_this_frame()
                    raise
                finally:
                    self._guarded(functools.partial(recording.log.end_loading, loaded))
            yield item

    @property
    def calls(self) -> int:
        """How many steps have begun."""
        return self._calls

    def count_from(self, step: int) -> None:
        """Say before the first call which of the job's steps that is; for frameworks, which know it."""
        self._numbers.give(step, "framework")

    def finish(self) -> None:
        """End the recording and write what there is; the files are complete when it returns.

        Called automatically at exit; may be called again.
        """
        self._finish(is_failing)

    def _finish(self, is_failing: Callable[[], bool]) -> None:
        if self._is_rest and not is_failing():
            self._is_rest = False
            self._cancel()
        self._guarded(lambda: self._windows.finish(self._calls, failing=is_failing()))
        self._stop_listening()

    def _enter(self) -> bool:
        """Begin a call; return False if it is part of a call that has begun, or runs on another thread."""
        if self._in_call:
            return False
        if self._calls >= self._next_event:
            return self._enter_event()
        self._in_call = True
        self._calls += 1
        return True

    def _enter_event(self) -> bool:
        """Begin a call that `Windows` handles."""
        if self._thread is None:
            self._thread = threading.get_ident()
        elif self._thread != threading.get_ident():
            return False  # torch's profiler belongs to the thread that started it
        self._in_call = True
        self._calls += 1
        try:
            self._guarded(self._on_call)
        except BaseException:  # an interrupt by the user: this call does not begin
            self._in_call = False
            raise
        return True

    def _leave(self, failed: bool) -> None:
        self._in_call = False
        if failed:
            self._attempt_log.raised(sys.exc_info()[1])
        if self._windows.open_recording is not None:
            self._guarded(lambda: self._windows.returned(failed))

    def _cancel(self) -> None:
        self._calls -= 1
        recording = self._windows.open_recording
        if recording is not None:
            self._guarded(recording.log.cancel)

    def _on_call(self) -> None:
        call = self._calls - 1
        if call == 0:
            _started_probes.add(self)
            for recorder in PROCESS_RECORDERS:
                recorder.step_began()
            self._exit_hooks.install()
        if self._sigterm.requested:
            self._windows.finish(call)
        if call >= self._next_window_event:
            self._on_window_event(call)
        if call >= self._next_log_event:
            self._next_log_event = self._attempt_log.on_call(call, self._numbers.first)
        self._next_event = min(self._next_window_event, self._next_log_event)

    def _on_window_event(self, call: int) -> None:
        self._next_window_event = self._windows.on_call(call)
        if self._windows.is_writing or self._windows.open_recording is not None:
            self._sigterm.install()
        elif self._windows.finished:
            self._stop_listening()
        else:
            self._sigterm.remove()

    def _stop_listening(self) -> None:
        """Record no further call; handle the exit of the process only if something is still being written."""
        self._next_window_event = NEVER
        self._next_event = self._next_log_event
        if self._windows.is_writing:
            return
        for hook in (self._exit_hooks, self._sigterm):
            with contextlib.suppress(Exception):  # a hook that stays does nothing after the probe has finished
                hook.remove()

    def _flush(self) -> bool:
        if self._busy:
            return False
        self._finish(lambda: True)
        self._attempt_log.ended("sigterm")
        return True

    def _guarded(self, action: Callable[[], None]) -> None:
        """Run `action`; an error in it ends the probe, never the training loop.

        What a signal handler of the user raises meanwhile (KeyboardInterrupt, SystemExit) passes.
        """
        outer, self._busy = self._busy, True
        try:
            action()
        except Exception as error:
            self._give_up(f"recording has ended: {type(error).__name__}: {error}")
        except BaseException:
            self._give_up(None)
            raise
        finally:
            self._busy = outer
            if not outer:
                self._sigterm.deliver_deferred()

    def _give_up(self, reason: str | None) -> None:
        with contextlib.suppress(Exception):
            if reason is not None:
                warn(reason)
        with contextlib.suppress(Exception):
            self._windows.abandon()
        self._stop_listening()

    def _after_fork(self) -> None:
        """In a forked child: stop, as the recording and its files are the parent's."""
        self._attempt_log.after_fork()
        self._next_log_event = NEVER
        self._in_call = False
        self._windows.after_fork()
        self._stop_listening()


def _after_fork_in_child() -> None:
    """Stop all probes: a data loader's worker is a copy of the training process, with its profiler and hooks."""
    for started in list(_started_probes):
        with contextlib.suppress(Exception):
            started._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
