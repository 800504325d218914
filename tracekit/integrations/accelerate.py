"""Records a training loop that uses accelerate.

    with AccelerateProbe(accelerator, "runs") as probe:
        for batch in loader:
            with accelerator.accumulate(model):
                ...
                optimizer.step()
            probe.step()

The recorded steps are those of the optimizer.
"""

from __future__ import annotations

import os
from types import TracebackType
from typing import Any, Self

from tracekit.integrations.loop import RecordedLoop


class AccelerateProbe:
    """`tracekit.probe` for loops with `accelerator.accumulate`; `options` are the probe's."""

    def __init__(self, accelerator: Any, path: str | os.PathLike[str] = "runs", **options: Any) -> None:
        self._accelerator = accelerator
        self._loop = RecordedLoop(path, options)

    def __enter__(self) -> Self:
        self._loop.begin()
        return self

    def step(self) -> None:
        """Call this after each batch: it ends the step if the batch synchronised gradients."""
        if self._accelerator.sync_gradients:
            self._loop.step()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.end(error)
