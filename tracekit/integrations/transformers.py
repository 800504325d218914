"""A callback that records the training of a Trainer of Hugging Face's transformers.

    trainer = Trainer(..., callbacks=[TransformersCallback("runs")])

The recorded steps are those of the optimizer, as the trainer counts them. An evaluation between two steps belongs to
the first of them.
"""

from __future__ import annotations

import os
from typing import Any

from transformers import TrainerCallback

from tracekit.integrations.loop import RecordedLoop


class TransformersCallback(TrainerCallback):
    """`tracekit.probe` as a callback; `options` are the probe's."""

    def __init__(self, path: str | os.PathLike[str] = "runs", **options: Any) -> None:
        super().__init__()
        self._loop = RecordedLoop(path, options)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._loop.begin(state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._loop.step()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._loop.end()
