"""Decides at which call a window is prepared, opened, closed and written. `probe_object.py` catches what it raises."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tracekit.capture.hooks.live_objects import LiveObjects
from tracekit.capture.hooks.patching import warn
from tracekit.capture.job.membership import JobMembership
from tracekit.capture.job.process import is_capturing_graph
from tracekit.capture.output.paths import DiskBudget
from tracekit.capture.profiler_session import (
    acquire_profiler,
    other_profiler,
    release_profiler,
    why_nothing_is_recorded,
)
from tracekit.capture.recording import Recording
from tracekit.capture.schedule import NEVER, Schedule, StepNumbers, WindowPlan
from tracekit.capture.window_writer import WindowWriter


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
        budget: DiskBudget,
        numbers: StepNumbers,
        quiet: bool,
    ) -> None:
        self.finished = False
        self.open_recording: Recording | None = None
        self._schedule = schedule
        self._options = options
        self._watch = watch
        self._job = JobMembership(path, number)
        self._numbers = numbers
        self._on_other_profiler = on_other_profiler
        self._writer = WindowWriter(path, schedule, self._job, numbers, budget)
        self._quiet = quiet
        self._delay = 0  # calls by which windows are postponed: another probe recorded, or a graph was captured
        self._plan = schedule.window(0)
        self._prepared: Recording | None = None
        self._has_warned = False

    @property
    def job(self) -> JobMembership:
        """Which rank of the job this is, and of which run."""
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

    def yield_to_other_profiler(self) -> None:
        """Write what there is and stop: another profiler is about to start."""
        text = "another profiler was started during the recording, which ends there"
        if self.open_recording is not None:
            self.open_recording.note(text)
            self._warn_once(text)
            self._close()
        elif self._prepared is not None:
            self._prepared.discard()
            self._prepared = None
            release_profiler(self)
            self._warn_once(text)

    def end_full_window(self) -> None:
        """End the window that waits for the next call to end it: another probe of this process begins one."""
        if self.open_recording is not None and self.open_recording.is_full:
            self._close()

    def finish(self, calls: int, *, failing: bool = False) -> None:
        """End and write everything: the loop has ended after `calls` calls. `failing`: because of an error."""
        if not self.finished:
            self.finished = True
            if self._prepared is not None:
                self._prepared.discard()
                self._prepared = None
            if (recording := self.open_recording) is not None:
                recording.wait_for_device(failing=failing or recording.log.has_failed)
                self._close(calls)
            elif self._plan is not None and self._plan.index == 0 and calls:
                self._writer.warn_of_short_loop(calls, "0")
            self._end()
        self._writer.finish()

    def abandon(self) -> None:
        """Drop everything without writing, and stop the profiler."""
        recordings = [self.open_recording, self._prepared]
        self.open_recording = self._prepared = None
        for recording in recordings:
            if recording is not None:
                with contextlib.suppress(Exception):
                    recording.discard()
        self._end()

    def after_fork(self) -> None:
        """In a forked child: drop everything, as it belongs to the parent."""
        recordings = [self.open_recording, self._prepared]
        self.open_recording = self._prepared = None
        self.finished = True
        self._writer.after_fork()
        self._job.after_fork()
        for recording in recordings:
            if recording is not None:
                recording.after_fork()
        release_profiler(self)

    def _end(self) -> None:
        self.finished = True
        release_profiler(self)
        self._writer.when_idle(self._leave)

    def _leave(self) -> None:
        if not self._quiet:
            with contextlib.suppress(Exception):  # stderr may be closed
                self._writer.say_what_is_recorded()
        self._job.leave()

    def _begin_window(self, call: int, objects: LiveObjects) -> None:
        if self._writer.has_failed:
            self._end()
        if self.finished:  # the window before this one could not be written
            return
        plan = self._plan
        if plan is None:
            self._end()
        elif call in {plan.prepare, plan.first}:
            if is_capturing_graph():
                self._postpone(plan, call)
                return
            if plan.index == 0:
                self._numbers.check(call, objects)
            if not acquire_profiler(self):
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
        self._job.publish_first_step(self._numbers.first)
        recording = self._prepared or self._new_recording(plan)
        recording.plan = plan  # it may have been postponed since the warm-up
        recording.log.first_step = self._numbers.first.first_step
        self.open_recording, self._prepared = recording, None  # set before it opens, so that a failure can undo it
        recording.open(objects)
        recording.mark(call)

    def _close(self, calls: int | None = None, *, objects: LiveObjects | None = None) -> None:
        """End the open recording. `calls`: the number of calls, if the loop is over."""
        recording = self.open_recording
        assert recording is not None
        recording.close(objects)
        self.open_recording = None
        release_profiler(self)
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
