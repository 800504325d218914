"""Leaves a small file from which a reader can tell when an attempt of a job made its steps, and how it ended.

It is written in jobs that may be restarted only. A killed process says nothing at its end, so the file is kept up to
date: the call that begins and the time, at most every `PERIOD_NS`, in one write of 16 bytes. Between these the probe
does nothing. Steps that are much shorter than that are looked at once in many calls.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing.util
import os
import time
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import Any

from tracekit.capture.ending import is_failing
from tracekit.capture.job.elastic_launch import group_joined_ns
from tracekit.capture.job.membership import JobMembership
from tracekit.capture.job.run_agreement import AgreedStep
from tracekit.capture.output.paths import DiskBudget, progress_file
from tracekit.capture.schedule import NEVER
from tracekit.model.metadata import ProgressHeader
from tracekit.model.metadata.job import FILE_BYTES, RING_ENTRIES, pack_entry, pack_header

PERIOD_NS = 100_000_000  # between two entries
MOST_CALLS = 256  # between two entries: steps may become longer


class AttemptLog:
    """The progress file of one probe. Nothing that fails here is reported: the file is then missing or old."""

    def __init__(self, path: Path, job: JobMembership, budget: DiskBudget) -> None:
        self._path = path
        self._job = job
        self._budget = budget
        self._pid = os.getpid()
        self._file: int | None = None
        self._header: ProgressHeader | None = None
        self._entries: deque[tuple[int, int]] = deque(maxlen=RING_ENTRIES)  # until there is a file
        self._written = 0
        self._last: tuple[int, int] | None = None
        self._first_call_ns = 0
        self._ended = False

    def on_call(self, call: int, first_step: AgreedStep) -> int:
        """Note that `call` begins; return the next call to report, or NEVER."""
        now_ns = time.time_ns()
        if self._ended:
            return NEVER
        try:
            return self._on_call(call, now_ns, first_step)
        except Exception:
            self.close()
            return NEVER

    def raised(self, error: BaseException | None) -> None:
        """Note that a call has raised."""
        with contextlib.suppress(Exception):
            self._update(raised_ns=time.time_ns(), error=None if error is None else type(error).__name__[:100])

    def ended(self, ending: str) -> None:
        """Note that the process begins to exit: "exit", "error" or "sigterm"."""
        with contextlib.suppress(Exception):
            self._update(ended_ns=time.time_ns(), ending=ending)

    def close(self) -> None:
        """Write no more."""
        self._ended = True
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):
                os.close(file)
        atexit.unregister(self._at_exit)

    def after_fork(self) -> None:
        """In a forked child: the file is the parent's."""
        self.close()

    def _on_call(self, call: int, now_ns: int, first_step: AgreedStep) -> int:
        if self._last is None:
            self._job.join()
            if self._job.launch is None or not self._job.launch.may_restart:
                self.close()
                return NEVER
            self._first_call_ns = now_ns
            atexit.register(self._at_exit)
            # Processes of `multiprocessing` end without `atexit`.
            multiprocessing.util.Finalize(None, self._at_exit, exitpriority=99)
        if self._file is None:
            self._entries.append((call, now_ns))
            self._job.join()
            self._job.poll_run()
            self._create(first_step)
        else:
            self._write_entry(call, now_ns)
        header, number, source = self._header, first_step.first_step, first_step.source
        if header is not None and (header.first_step, header.first_step_source) != (number, source):
            self._update(first_step=number, first_step_source=source)
        return call + self._calls_until_next(call, now_ns)

    def _calls_until_next(self, call: int, now_ns: int) -> int:
        """Return after how many calls the next entry is due, as far as the last steps tell; at most `MOST_CALLS`."""
        last, self._last = self._last, (call, now_ns)
        if last is None or now_ns <= last[1]:
            return 1
        calls = PERIOD_NS * (call - last[0]) // (now_ns - last[1])
        return max(min(calls, MOST_CALLS, 2 * (call - last[0])), 1)

    def _create(self, first_step: AgreedStep) -> None:
        """Create the file with all entries so far, unless the run is not known yet. Raises OSError, OutputError."""
        run, identity, launch = self._job.run, self._job.identity, self._job.launch
        if run is None or launch is None:
            return
        file = progress_file(self._path.absolute(), run.run_id, run.attempt, identity.rank, identity.world_size)
        file.parent.mkdir(parents=True, exist_ok=True)
        self._budget.check_free_space(file.parent)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        self._file = descriptor
        os.ftruncate(descriptor, FILE_BYTES)
        self._header = ProgressHeader(
            run_id=run.run_id,
            attempt=run.attempt,
            rank=identity.rank,
            world_size=identity.world_size,
            pid=self._pid,
            host=identity.host,
            host_id=identity.host_id,
            elastic_id=launch.elastic_id[:200],
            agent=launch.agent,
            worker=launch.worker,
            restarts=launch.restarts,
            process_start_ns=launch.start_ns,
            joined_ns=group_joined_ns(),
            first_call_ns=self._first_call_ns,
            first_step=first_step.first_step,
            first_step_source=first_step.source,
        )
        self._update()
        for call, time_ns in self._entries:
            self._write_entry(call, time_ns)
        self._entries.clear()

    def _write_entry(self, call: int, time_ns: int) -> None:
        if self._file is not None:
            offset, entry = pack_entry(self._written, call, time_ns)
            os.pwrite(self._file, entry, offset)
            self._written += 1

    def _update(self, **changes: Any) -> None:
        if self._header is not None and self._file is not None and os.getpid() == self._pid:
            self._header = replace(self._header, **changes)
            os.pwrite(self._file, pack_header(self._header), 0)

    def _at_exit(self) -> None:
        if os.getpid() == self._pid:
            self.ended("error" if is_failing(at_exit=True) else "exit")
