"""Writes closed recordings while the training goes on: decides under which run and step, and exports the trace.

The rest is written later, by a thread of the training process that writes one trace after the other.
"""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Condition, Thread

from tracekit.capture.hooks.patching import warn
from tracekit.capture.job.membership import JobMembership
from tracekit.capture.output.packing import CheckedExport, write_trace
from tracekit.capture.output.paths import DiskBudget, RecordingPaths, trace_folder
from tracekit.capture.recording import Recording
from tracekit.capture.schedule import Schedule, StepNumbers
from tracekit.errors import OutputError
from tracekit.model.metadata import CaptureMetadata
from tracekit.model.texts import safe_text

CLOCK_LIMIT_S = 2.0  # how long a finished trace waits for the clock of its host
MAX_WAITING = 1  # exports that wait on the disk, beside the one that is being packed


class WindowWriter:
    """The recordings of one probe on their way to the disk. A thread writes them while the training goes on."""

    def __init__(
        self, path: Path, schedule: Schedule, job: JobMembership, numbers: StepNumbers, budget: DiskBudget
    ) -> None:
        self._path = path
        self._schedule = schedule
        self._job = job
        self._numbers = numbers
        self._budget = budget
        self._background = BackgroundWriter(self._warn_of_loss)
        self._exported: list[tuple[str, int]] = []  # run and number of each whole step

    @property
    def is_idle(self) -> bool:
        return self._background.is_idle

    @property
    def has_failed(self) -> bool:
        """Whether a trace could not be written: no further one will be."""
        return self._background.has_failed

    def finish(self) -> None:
        """Return when all files are complete."""
        self._background.finish()

    def when_idle(self, action: Callable[[], None]) -> None:
        """Call `action` when all that was exported is written."""
        self._background.when_idle(action)

    def after_fork(self) -> None:
        """In a forked child: drop what is not written, as it belongs to the parent, and so does the thread."""
        self._background = BackgroundWriter(self._warn_of_loss)

    def write(self, recording: Recording, calls: int | None) -> bool:
        """Export what a closed recording has, and leave the rest to the thread. `calls`: how many, if the loop is over.

        Returns False if it does not fit on the disk: no further recording will.
        """
        if not recording.log.steps:
            return True
        self._job.join()
        identity = self._job.identity
        if not recording.saw_process_group and not self._job.by_rpc and identity.world_size > 1:
            text = "no process group was initialised, so this process is recorded alone"
            recording.note(text)
            warn(f"rank {identity.rank}: {text}")
        call = recording.log.steps[0].step
        run_id, recording.first_step = self._job.settle_run(call, self._numbers.first, recording.note, warn)
        if self._numbers.note is not None:
            recording.note(self._numbers.note)
        identity = self._job.identity  # with the attempt
        first_step = call + recording.first_step.first_step
        folder = trace_folder(
            self._path.absolute(), run_id, identity.attempt, first_step, identity.rank, identity.world_size
        )
        paths = RecordingPaths(folder, identity.rank)

        def describe(export: CheckedExport) -> CaptureMetadata:
            return recording.describe(export, run_id, identity, CLOCK_LIMIT_S)

        try:
            recording.export(paths, self._budget)
            self._background.submit(ExportedTrace(paths=paths, describe=describe, budget=self._budget))
            whole = [step.step - call for step in recording.log.steps if step.end_ns is not None]
            self._exported += [(run_id, first_step + number) for number in whole]
        except OutputError as error:
            self._warn_of_loss(str(error))
            return False
        except BaseException:
            paths.remove_scratch()
            raise
        if recording.is_partial and calls is not None:
            self.warn_of_short_loop(calls, f"{len(recording.log.steps)}, marked partial")
        return True

    def warn_of_short_loop(self, calls: int, recorded: str) -> None:
        """Warn that the loop ended before a window was full. `recorded`: how many steps there are."""
        self._job.join()
        schedule = self._schedule
        warn(
            f"rank {self._job.identity.rank}: the loop ended after {calls} steps, but skip={schedule.skip} "
            f"+ warmup={schedule.warmup} + steps={schedule.steps} need {schedule.calls_needed} a window: recorded "
            f"{recorded}; lower skip or steps (TRACEKIT_SKIP, TRACEKIT_STEPS)"
        )

    def say_what_is_recorded(self) -> None:
        """Say once, on rank 0, which steps are in which folder, and what to type next."""
        exported, self._exported = self._exported, []
        if not exported or self.has_failed or self._job.identity.rank:
            return
        run, first, last = exported[-1][0], exported[0][1], exported[-1][1]
        steps = f"steps {first} to {last}" if first < last else f"step {first}"
        if last - first >= len(exported):  # there are some between the windows
            steps = f"{len(exported)} of the {steps}"
        size = self._job.identity.world_size
        ranks = f"{size} ranks" if size > 1 else "1 rank"
        command = shlex.join(["tracekit", "analyze", str(self._path.absolute() / run)])
        sys.stderr.write(f"tracekit: recorded {steps} of {ranks}; next: {safe_text(command)}\n")
        sys.stderr.flush()

    def _warn_of_loss(self, reason: str) -> None:
        warn(f"rank {self._job.identity.rank}: {reason}; nothing more is recorded")


@dataclass(frozen=True, kw_only=True)
class ExportedTrace:
    """An export that is to be packed.

    Attributes:
        describe: returns the metadata; may wait for what is not known yet.
    """

    paths: RecordingPaths
    describe: Callable[[CheckedExport], CaptureMetadata]
    budget: DiskBudget


class BackgroundWriter:
    """Writes exported traces in order, on a thread that lives while there are some.

    `on_error` gets the first error, on that thread; what comes after it is dropped.
    """

    def __init__(self, on_error: Callable[[str], None]) -> None:
        self._on_error = on_error
        self._waiting: deque[ExportedTrace | Callable[[], None]] = deque()
        self._changed = Condition()
        self._thread: Thread | None = None
        self._failed = False

    @property
    def is_idle(self) -> bool:
        return self._thread is None

    @property
    def has_failed(self) -> bool:
        """Whether a trace could not be written: no further one will be."""
        return self._failed

    def submit(self, trace: ExportedTrace) -> None:
        """Write `trace` soon. Waits while too many exports lie on the disk."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._waiting) < MAX_WAITING)
        self._add(trace)

    def when_idle(self, action: Callable[[], None]) -> None:
        """Call `action` when all that was submitted is written."""
        if self.is_idle:
            action()
        else:
            self._add(action)

    def finish(self) -> None:
        """Return when everything is written."""
        with self._changed:
            while self._thread is not None:
                self._changed.wait()

    def _add(self, item: ExportedTrace | Callable[[], None]) -> None:
        with self._changed:
            self._waiting.append(item)
            if self._thread is not None:
                return
            self._thread = Thread(target=self._run, name="tracekit-writer", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # there are too many threads, or the process is about to exit
            self._run()
        except BaseException:
            self._thread = None
            raise

    def _run(self) -> None:
        """Write what waits, on the thread or, where none can be started, on the caller's."""
        try:
            while (item := self._next()) is not None:
                if isinstance(item, ExportedTrace):
                    self._write(item)
                else:
                    with contextlib.suppress(Exception):
                        item()
        except BaseException:
            with self._changed:
                self._failed, self._thread = True, None
                self._changed.notify_all()
            raise

    def _next(self) -> ExportedTrace | Callable[[], None] | None:
        """Return what is to be done next; None ends the thread."""
        with self._changed:
            item = self._waiting.popleft() if self._waiting else None
            if item is None:
                self._thread = None
            self._changed.notify_all()
            return item

    def _write(self, trace: ExportedTrace) -> None:
        try:
            if not self._failed:
                write_trace(trace.paths, trace.describe, trace.budget)
        except Exception as error:
            self._failed = True
            self._on_error(str(error) if isinstance(error, OutputError) else f"{type(error).__name__}: {error}")
        finally:
            trace.paths.remove_scratch()
