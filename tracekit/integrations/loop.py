"""A loop that somebody else runs: begin, a step, a step ..., end, as callbacks hear of them.

Comes in: the options of `tracekit.probe`. Goes out: its recording. A loop that begins again is recorded anew.
"""

from __future__ import annotations

import os
from typing import Any

from tracekit.capture.probe import Probe, check_options, probe

__all__ = ["RecordedLoop"]


class RecordedLoop:
    def __init__(self, path: str | os.PathLike[str], options: dict[str, Any]) -> None:
        self._path = path
        self._options = options
        self._probe: Probe | None = None
        check_options(path, **options)  # wrong ones are told of at once, not when training begins

    def begin(self) -> None:
        """The first step begins; nothing happens if it has begun before."""
        if self._probe is None:
            self._probe = probe(self._path, **self._options)
            self._probe.__enter__()

    def step(self) -> None:
        """A step has ended and the next one begins."""
        if self._probe is not None:
            self._probe.step()

    def end(self, error: BaseException | None = None) -> None:
        """The loop has ended, by `error` if there is one; what began after the last step is none."""
        if self._probe is not None:
            ended, self._probe = self._probe, None
            ended.__exit__(None if error is None else type(error), error, None)
