"""A callback that records the training of a Lightning trainer.

    trainer = Trainer(callbacks=[LightningCallback("runs")])

The recorded steps are those of the optimizer: a step ends with the batch in which `trainer.global_step` has advanced. A
validation between two batches belongs to the step before it.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from tracekit.integrations.loop import RecordedLoop

_LIBRARIES = ("lightning.pytorch", "pytorch_lightning")  # two packages with the same trainer


def _callback_types() -> tuple[Any, ...]:
    """Return the callback class of each imported library; if none is imported, of the first that is installed."""
    imported = [sys.modules[name] for name in _LIBRARIES if name in sys.modules]
    if imported:
        return tuple(library.Callback for library in imported)
    for name in _LIBRARIES:
        try:
            return (importlib.import_module(name).Callback,)
        except ModuleNotFoundError as error:
            if error.name is None or not name.startswith(error.name):
                raise
    raise ModuleNotFoundError("LightningCallback needs lightning or pytorch_lightning", name="lightning")


class LightningCallback(*_callback_types()):  # type: ignore[misc]
    """`tracekit.probe` as a callback; `options` are the probe's."""

    def __init__(self, path: str | os.PathLike[str] = "runs", **options: Any) -> None:
        super().__init__()
        self._loop = RecordedLoop(path, options)
        self._optimizer_steps = 0

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._optimizer_steps = trainer.global_step

    def on_train_batch_start(self, trainer: Any, pl_module: Any, *batch: Any) -> None:
        self._loop.begin(self._optimizer_steps)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *batch: Any) -> None:
        if trainer.global_step != self._optimizer_steps:
            self._optimizer_steps = trainer.global_step
            self._loop.step()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._loop.end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._loop.end(exception)
