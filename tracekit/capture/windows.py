"""The life of a probe's recordings: which call prepares, opens, closes and writes which window.

Comes in: numbers of calls. Goes out: traces, through `recording.py`. What it raises is caught by `probe.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tracekit.capture.clock import HostClock
from tracekit.capture.process import (
    Identity,
    await_run_id,
    default_store,
    identify,
    look_up_run_id,
    offer_run_id,
    process_group_ready,
)
from tracekit.capture.recording import Recording
from tracekit.capture.schedule import Plan, Schedule
from tracekit.capture.session import foreign_profiler
from tracekit.capture.warn import warn
from tracekit.errors import OutputError

NEVER = 1 << 62

__all__ = ["Windows"]


class Windows:
    def __init__(
        self,
        path: Path,
        schedule: Schedule,
        options: dict[str, bool],
        watch: Sequence[Any],
        on_rival: Callable[[], None],
    ) -> None:
        self.finished = False
        self.open_recording: Recording | None = None
        self._path = path
        self._schedule = schedule
        self._options = options
        self._watch = watch
        self._on_rival = on_rival
        self._plan = schedule.window(0)
        self._prepared: Recording | None = None
        self._early: Recording | None = None  # closed and kept, in case that no window ever opens
        self._identity: Identity | None = None
        self._joined = False  # whether the process group was there when identity, clock and run id were settled
        self._clock = HostClock(None, identify())
        self._run_id: str | None = None
        self._declined = False

    def on_call(self, call: int) -> int:
        """Call `call` begins. Returns the next call that matters."""
        if call == 0 and not self._can_record():
            self.finished = True
        if self.finished:
            return NEVER
        if self.open_recording is not None:
            self.open_recording.mark(call)
            if call >= self.open_recording.plan.stop:
                self._close()
        if self.open_recording is None:
            self._begin_window(call)
        return self._next_event(call)

    def returned(self, failed: bool) -> None:
        """The current call has returned, or raised."""
        if self.open_recording is not None:
            self.open_recording.returned(failed)
            if self._run_id is None:
                # Asked for while the peers are there: when this rank writes, rank 0 may have left with the store.
                self._join()
                self._run_id = look_up_run_id(default_store())

    def give_way(self) -> None:
        """Another profiler is about to start: write what there is, leave it the field."""
        text = "another profiler was started during the recording, which ends there"
        if self.open_recording is not None:
            self.open_recording.note(text)
            if not self.open_recording.plan.early:
                self._decline(text)
            self._close()
        elif self._prepared is not None:
            self._prepared.close()
            self._prepared = None
            self._decline(text)

    def finish(self, calls: int) -> None:
        """The loop has ended after `calls` calls."""
        if self.finished:
            return
        self.finished = True
        if self._prepared is not None:
            self._prepared.close()
            self._prepared = None
        if self.open_recording is not None:
            self._close(calls)
        if self._early is not None:
            self._write(self._early, calls)
            self._early = None

    def abandon(self) -> None:
        """Drop everything without writing; the profiler is left off."""
        self.finished = True
        recordings = [self.open_recording, self._prepared]
        self.open_recording = self._prepared = self._early = None
        for recording in recordings:
            if recording is not None:
                recording.close()

    def _begin_window(self, call: int) -> None:
        early, plan = self._schedule.early(), self._plan
        if call == 0 and early is not None:
            if foreign_profiler() is None:
                self._open(early, call)
        elif plan is None:
            self.finished = True
        elif call == plan.first:
            # Once prepared, the session itself sees others come.
            reason = None if self._prepared is not None else foreign_profiler()
            if reason is None:
                self._early = None
                self._open(plan, call)
            else:
                self._decline(f"{reason}, so this window is not recorded")
                self._plan = self._schedule.window(plan.index + 1)
        elif call == plan.prepare and foreign_profiler() is None:
            self._join()
            self._prepared = self._new_recording(plan)
            self._prepared.prepare()

    def _next_event(self, call: int) -> int:
        if self.open_recording is not None:
            return call + 1
        if self._plan is None:
            return NEVER
        return self._plan.prepare if call < self._plan.prepare else self._plan.first

    def _open(self, plan: Plan, call: int) -> None:
        self._join()
        recording = self._prepared or self._new_recording(plan)
        self._prepared = None
        recording.open()
        self.open_recording = recording
        recording.mark(call)

    def _close(self, calls: int | None = None) -> None:
        """End the open recording. `calls`: how many there were, if the loop is over."""
        recording = self.open_recording
        assert recording is not None
        self.open_recording = None
        recording.close()
        if recording.plan.early:
            self._early = recording
            return
        self._plan = self._schedule.window(recording.plan.index + 1)
        self._write(recording, calls)

    def _write(self, recording: Recording, calls: int | None) -> None:
        if not recording.steps:
            return
        self._join()
        identity = self._identity
        assert identity is not None
        if not recording.saw_process_group:
            text = "no process group was initialised, so this process is recorded alone"
            recording.note(text)
            warn(f"rank {identity.rank}: {text}")
        if self._run_id is None:
            self._run_id, known = await_run_id(default_store(), identity)
            if not known:
                recording.note("rank 0 did not name the run in time, so this rank's folder has a name of its own")
        try:
            recording.write(self._path, self._run_id, identity)
        except OutputError as error:
            warn(f"rank {identity.rank}: {error}; nothing more is recorded")
            self.finished = True
            return
        if recording.is_partial and calls is not None:
            schedule = self._schedule
            warn(
                f"rank {identity.rank}: the loop ended after {calls} steps, but skip={schedule.skip} "
                f"+ warmup={schedule.warmup} + steps={schedule.steps} need {schedule.calls_needed} a window: recorded "
                f"{len(recording.steps)}, marked partial; lower skip or steps (TRACEKIT_SKIP, TRACEKIT_STEPS)"
            )

    def _new_recording(self, plan: Plan) -> Recording:
        return Recording(plan, self._options, self._clock, self._watch, self._on_rival)

    def _decline(self, reason: str) -> None:
        if not self._declined:
            self._declined = True
            warn(reason)

    def _can_record(self) -> bool:
        try:
            import torch.profiler
        except ImportError:
            warn("torch is not installed, so nothing is recorded")
            return False
        if not torch.profiler.kineto_available():
            warn("this build of torch has no profiler (Kineto), so nothing is recorded")
            return False
        return True

    def _join(self) -> None:
        """Settle who this rank is, once there is a process group; until then as well as it can be known."""
        if self._joined:
            return
        self._joined = process_group_ready()
        self._identity = identify()
        if self._joined:
            store = default_store()
            self._run_id = offer_run_id(store, self._identity)
            self._clock = HostClock(store, self._identity)
            self._clock.register()
        elif self._run_id is None:
            self._run_id = offer_run_id(None, self._identity)
