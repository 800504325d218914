"""Records a loop that a framework runs, from its callbacks: begin, steps, end. A loop may begin again after its end."""

from __future__ import annotations

import os
from typing import Any

from tracekit.capture.probe import check_options, probe
from tracekit.capture.probe_object import Probe


class RecordedLoop:
    """`tracekit.probe` with its options, driven by callbacks."""

    def __init__(self, path: str | os.PathLike[str], options: dict[str, Any]) -> None:
        self._path = path
        self._options = options
        self._probe: Probe | None = None
        check_options(path, **options)  # so that wrong options raise now, not when training begins

    def begin(self, first_step: int | None = None) -> None:
        """Begin the first step; does nothing if the loop has begun.

        first_step: its number, as the framework counts.
        """
        if self._probe is None:
            self._probe = probe(self._path, **self._options)
            if first_step is not None:
                self._probe.count_from(first_step)
            self._probe.__enter__()

    def step(self) -> None:
        """End a step and begin the next."""
        if self._probe is not None:
            self._probe.step()

    def end(self, error: BaseException | None = None) -> None:
        """End the loop, because of `error` if there is one; the step that began last does not count."""
        if self._probe is not None:
            ended, self._probe = self._probe, None
            ended.__exit__(None if error is None else type(error), error, None)
