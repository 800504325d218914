"""Keeps when the steps of a recording began and ended, and how long each waited for the data loader."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import Any

from tracekit.capture.hooks.span import span
from tracekit.model.metadata import RecordedStep
from tracekit.model.spans import DATA_SPAN


@dataclass(kw_only=True)
class _OpenStep:
    """A step whose end is not known yet."""

    step: int
    start_ns: int
    returned_ns: int | None = None
    failed: bool = False
    data_ns: int | None = None


class StepLog:
    """The steps of one recording, the last of which may be open. They are numbered by calls."""

    def __init__(self) -> None:
        self.first_step = 0  # of the job; spans have its numbers, and everything here those of the calls
        self.steps: list[RecordedStep] = []
        self._current: _OpenStep | None = None
        self._longest_ns = 0
        self._span: Any = None
        self._loading: Any = None
        self._loading_start_ns = 0

    @property
    def is_in_step(self) -> bool:
        """Whether the call of the open step has not returned."""
        return self._current is not None and self._current.returned_ns is None

    @property
    def has_failed(self) -> bool:
        """Whether the call of the open step has raised."""
        return self._current is not None and self._current.failed

    @property
    def returned_ns(self) -> int | None:
        """When the call of the open step returned."""
        return None if self._current is None else self._current.returned_ns

    @property
    def longest_ns(self) -> int:
        """The longest step so far; the open one counts as soon as its call has returned."""
        step = self._current
        if step is not None and step.returned_ns is not None:
            return max(self._longest_ns, step.returned_ns - step.start_ns)
        return self._longest_ns

    def begin(self, call: int, begin_ns: int) -> None:
        """Begin the step of call `call`; the one before it has been ended."""
        self._span = sys.modules["torch"].profiler.record_function(f"ProfilerStep#{call + self.first_step}")
        self._span.__enter__()
        self._current = _OpenStep(step=call, start_ns=begin_ns)

    def returned(self, failed: bool) -> None:
        """Note that the call has returned: without a next call its step ends here. A call that raised never ends."""
        if self._current is not None:
            self._current.returned_ns = None if failed else time.time_ns()
            self._current.failed = failed

    def end(self, end_ns: int | None) -> None:
        """End the open step, if there is one; `end_span` belongs to it."""
        step, self._current = self._current, None
        if step is None:
            return
        ended_ns = None if step.failed else end_ns
        if ended_ns is not None:
            self._longest_ns = max(self._longest_ns, ended_ns - step.start_ns)
        self.steps.append(
            RecordedStep(
                step=step.step,
                start_ns=step.start_ns,
                end_ns=ended_ns,
                data_ns=step.data_ns,
                returned_ns=step.returned_ns,
            )
        )

    def end_span(self) -> None:
        """End the span of the step in the trace."""
        opened, self._span = self._span, None
        if opened is not None:
            opened.__exit__(None, None, None)

    def cancel(self) -> None:
        """Drop the open step: the call that began it found its generator exhausted."""
        self.end_span()
        self._current = None

    def begin_loading(self) -> None:
        """Note that the data iterator is asked for its next item."""
        self._loading = None
        loading = span(DATA_SPAN)
        loading.__enter__()
        self._loading, self._loading_start_ns = loading, time.monotonic_ns()

    def end_loading(self, loaded: bool) -> None:
        """Note that the data iterator has answered; the time counts for the open step if there was an item."""
        if self._loading is None:
            return
        data_ns = time.monotonic_ns() - self._loading_start_ns
        loading, self._loading = self._loading, None
        loading.__exit__(None, None, None)
        if loaded and self._current is not None:
            self._current.data_ns = (self._current.data_ns or 0) + data_ns
