"""Decides at which call a window is prepared, opened, closed and written. `probe_object.py` catches what it raises."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tracekit.capture.ending.idle_timeout import IdleTimeout, idle_timeout_s
from tracekit.capture.hooks.live_objects import LiveObjects
from tracekit.capture.job.device import accelerator_module, is_capturing_graph
from tracekit.capture.job.membership import JobMembership
from tracekit.capture.output.disk import DiskBudget
from tracekit.capture.profiler_lock import acquire_profiler, release_profiler
from tracekit.capture.profiler_session import other_profiler, why_nothing_is_recorded
from tracekit.capture.recording import FAILED_DEVICE_LIMIT_S, Recording
from tracekit.capture.schedule import NEVER, Schedule, WindowPlan
from tracekit.capture.step_numbers import StepNumbers
from tracekit.capture.warn import warn
from tracekit.capture.window_writer import WindowWriter

__all__ = ["Windows"]


class Windows:
    """The windows of one probe: at most one of them is prepared or open at a time.

    Attributes:
        finished: whether no window follows any more.
        open_recording: the recording of the open window.
    """

    def __init__(
        self,
        path: Path,
        schedule: Schedule,
        options: dict[str, bool],
        watch: Sequence[Any],
        number: int,
        on_other_profiler: Callable[[], None],
        on_idle: Callable[[], None],
        budget: DiskBudget,
        numbers: StepNumbers,
    ) -> None:
        self.finished = False
        self.open_recording: Recording | None = None
        self._schedule = schedule
        self._options = options
        self._watch = watch
        self._job = JobMembership(path, number)
        self._numbers = numbers
        self._on_other_profiler = on_other_profiler
        self._on_idle = on_idle
        self._idle_timeout: IdleTimeout | None = None  # of the open recording
        self._writer = WindowWriter(path, schedule, self._job, numbers, budget)
        self._delay = 0  # calls by which windows are postponed: another probe recorded, or a graph was captured
        self._plan = schedule.window(0)
        self._prepared: Recording | None = None
        self._early: Recording | None = None  # closed, kept in case no window ever opens
        self._thread: int | None = None
        self._has_warned = False

    @property
    def job(self) -> JobMembership:
        """This rank's place in the job."""
        return self._job

    @property
    def is_writing(self) -> bool:
        """Whether a trace is being written in the background."""
        return not self._writer.is_idle

    def on_call(self, call: int) -> int:
        """Begin call `call`; return the next call that must be reported."""
        if call == 0 and (reason := why_nothing_is_recorded()) is not None:
            warn(reason)
            self._end()
        if self.finished:
            return self._next_event(call)
        objects = LiveObjects(self._watch)  # searched once, for all that happens in this call
        if call == 0:
            self._numbers.begin(call, objects)
        if self.open_recording is not None:
            if self._idle_timeout is not None:
                self._idle_timeout.disarm()
            self.open_recording.mark(call)
            if call >= self.open_recording.plan.stop and not is_capturing_graph():
                self._close(objects=objects)
        if self.open_recording is None:
            self._begin_window(call, objects)
        return self._next_event(call)

    def returned(self, failed: bool) -> None:
        """Note that the current call has returned, or raised."""
        if self.open_recording is not None:
            self.open_recording.log.returned(failed)
            self._job.look_up_run()
            self._start_idle_timeout()

    def loaded(self, recording: Recording, loaded: bool) -> None:
        """End what `recording.log.begin_loading` began."""
        recording.log.end_loading(loaded)
        if recording is self.open_recording:
            self._start_idle_timeout()

    def end_idle(self) -> None:
        """Close the open recording, for which no call has come for long. Called on its thread, between two calls."""
        recording = self.open_recording
        if recording is None or recording.log.is_loading or self._thread != threading.get_ident():
            return
        if not recording.has_all_steps:
            recording.note(f"no step followed for {recording.idle_timeout_s:.0f} s, so the recording ends there")
        self._close(anywhere=True, device_limit_s=FAILED_DEVICE_LIMIT_S)  # the program is at other work

    def yield_to_other_profiler(self) -> None:
        """Write what there is and stop: another profiler is about to start."""
        text = "another profiler was started during the recording, which ends there"
        if self.open_recording is not None:
            self.open_recording.note(text)
            if not self.open_recording.plan.early:
                self._warn_once(text)
            self._close()
        elif self._prepared is not None:
            self._prepared.discard()
            self._prepared = None
            release_profiler(self)
            self._warn_once(text)

    def release_provisional(self) -> bool:
        """End the provisional recording for another probe's window; return whether there was one to end here."""
        recording = self.open_recording
        if recording is None or not recording.plan.early or self._thread != threading.get_ident():
            return False
        self._close()
        return True

    def finish(self, calls: int, *, failing: bool = False) -> None:
        """End and write everything: the loop has ended after `calls` calls. `failing`: because of an error."""
        if failing:
            self._writer.hurry()
        if not self.finished:
            self.finished = True
            if self._prepared is not None:
                self._prepared.discard()
                self._prepared = None
            if (recording := self.open_recording) is not None:
                failing = failing or recording.log.has_failed
                limit_s = FAILED_DEVICE_LIMIT_S if failing else idle_timeout_s(recording.log.longest_ns)
                self._close(calls, device_limit_s=limit_s)
            if self._early is not None:
                self._write(self._early, calls)
                self._early = None
            elif recording is None and self._plan is not None and self._plan.index == 0 and calls:
                self._writer.warn_of_short_loop(calls, "0")
            self._end()
        self._writer.finish()

    def abandon(self) -> None:
        """Drop everything without writing, and stop the profiler."""
        recordings = [self.open_recording, self._prepared]
        self.open_recording = self._prepared = self._early = None
        self._end_idle_timeout()
        for recording in recordings:
            if recording is not None:
                with contextlib.suppress(Exception):
                    recording.discard()
        self._end()

    def after_fork(self) -> None:
        """In a forked child: drop everything, as it belongs to the parent."""
        recordings = [self.open_recording, self._prepared]
        self.open_recording = self._prepared = self._early = None
        self.finished = True
        self._writer.after_fork()
        self._job.after_fork()
        if self._idle_timeout is not None:
            self._idle_timeout.after_fork()
        for recording in recordings:
            if recording is not None:
                recording.after_fork()
        release_profiler(self)

    def _end(self) -> None:
        self.finished = True
        release_profiler(self)
        self._writer.when_idle(self._job.leave)

    def _begin_window(self, call: int, objects: LiveObjects) -> None:
        if self._writer.has_failed:
            self._end()
        if self.finished:  # the window before this one could not be written
            return
        early, plan = self._schedule.early(), self._plan
        if call == 0 and early is not None and accelerator_module() is None:
            if other_profiler(objects) is None and acquire_profiler(self, provisional=True):
                self._open(early, call, objects)
        elif plan is None:
            self._end()
        elif call in {plan.prepare, plan.first}:
            if is_capturing_graph():
                self._postpone(plan, call)
                return
            if plan.index == 0:
                self._numbers.check(call, objects)
            if not acquire_profiler(self, provisional=False):
                self._warn_once("another probe of this process is recording, so this one's window waits for its end")
                self._postpone(plan, call)
            elif call == plan.first:
                self._open_window(plan, call, objects)
            elif other_profiler(objects) is None:
                self._job.join()
                self._prepared = self._new_recording(plan)
                self._prepared.prepare(objects)
            else:
                release_profiler(self)

    def _postpone(self, plan: WindowPlan, call: int) -> None:
        """Let `plan` begin with the next call. What is prepared already stays so."""
        calls = call + 1 - (plan.first if self._prepared is not None else plan.prepare)
        self._delay += calls
        self._plan = plan.shifted(calls)

    def _open_window(self, plan: WindowPlan, call: int, objects: LiveObjects) -> None:
        # Once prepared, the session itself notices other profilers.
        reason = None if self._prepared is not None else other_profiler(objects)
        if reason is None:
            if self._early is not None:
                self._early.drop()
                self._early = None
            self._open(plan, call, objects)
        else:
            release_profiler(self)
            self._warn_once(f"{reason}, so this window is not recorded")
            self._plan = self._window(plan.index + 1)

    def _window(self, index: int) -> WindowPlan | None:
        plan = self._schedule.window(index)
        return plan.shifted(self._delay) if plan is not None else None

    def _next_event(self, call: int) -> int:
        if self.open_recording is not None or self.is_writing:
            return call + 1
        if self._plan is None or self.finished:
            return NEVER
        return self._plan.prepare if call < self._plan.prepare else self._plan.first

    def _open(self, plan: WindowPlan, call: int, objects: LiveObjects) -> None:
        self._job.join()
        if not plan.early:  # before then a call may turn out to be no step of the optimizers
            self._job.publish_first_step(self._numbers.first)
        recording = self._prepared or self._new_recording(plan)
        recording.plan = plan  # it may have been postponed since the warm-up
        recording.log.first_step = self._numbers.first.first_step
        self._thread = threading.get_ident()
        self.open_recording, self._prepared = recording, None  # set before it opens, so that a failure can undo it
        recording.open(objects)
        recording.mark(call)

    def _start_idle_timeout(self) -> None:
        """Start to wait for the next call; a recording outside the main thread waits without a limit."""
        recording = self.open_recording
        assert recording is not None
        if self._idle_timeout is None and threading.current_thread() is threading.main_thread():
            self._idle_timeout = IdleTimeout(self._on_idle)
        if self._idle_timeout is not None:
            self._idle_timeout.arm(recording.idle_timeout_s)

    def _end_idle_timeout(self) -> None:
        ended, self._idle_timeout = self._idle_timeout, None
        if ended is not None:
            ended.end()

    def _close(
        self,
        calls: int | None = None,
        *,
        objects: LiveObjects | None = None,
        anywhere: bool = False,
        device_limit_s: float | None = None,
    ) -> None:
        """End the open recording. `calls`: the number of calls, if the loop is over."""
        recording = self.open_recording
        assert recording is not None
        self._end_idle_timeout()
        recording.close(objects, anywhere=anywhere, device_limit_s=device_limit_s)
        self.open_recording = None
        release_profiler(self)
        if recording.plan.early:
            self._early = recording
            return
        self._plan = self._window(recording.plan.index + 1)
        self._write(recording, calls)

    def _write(self, recording: Recording, calls: int | None) -> None:
        if not self._writer.write(recording, calls):
            self._end()

    def _new_recording(self, plan: WindowPlan) -> Recording:
        return Recording(plan, self._options, self._job.clock, self._watch, self._on_other_profiler)

    def _warn_once(self, reason: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            warn(reason)
