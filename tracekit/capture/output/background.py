"""Writes traces while the training goes on: a thread of the training process writes one after the other."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from threading import Condition, Thread

from tracekit.capture.output.disk import DiskBudget
from tracekit.capture.output.packing import CheckedExport, write_trace
from tracekit.capture.output.places import Place
from tracekit.errors import OutputError
from tracekit.model.metadata import CaptureMetadata

MAX_WAITING = 1  # exports that wait on the disk, beside the one that is being packed

__all__ = ["BackgroundWriter", "ExportedTrace"]


@dataclass(frozen=True, kw_only=True)
class ExportedTrace:
    """An export that is to be packed.

    Attributes:
        describe: returns the metadata; may wait for what is not known yet.
    """

    place: Place
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
                write_trace(trace.place, trace.describe, trace.budget)
        except Exception as error:
            self._failed = True
            self._on_error(str(error) if isinstance(error, OutputError) else f"{type(error).__name__}: {error}")
        finally:
            trace.place.remove_scratch()
