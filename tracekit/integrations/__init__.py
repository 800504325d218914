"""Integrations with frameworks that run the training loop. Each records through `tracekit.probe` and takes its options.

    LightningCallback("runs")       for Trainer(callbacks=[...]) of lightning or pytorch_lightning
    TransformersCallback("runs")    for Trainer(callbacks=[...]) of transformers
    AccelerateProbe(accelerator)    around your own loop with accelerate

A step is a step of the optimizer, with all its micro-batches of gradient accumulation. A framework is imported when its
class is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracekit.integrations.accelerate import AccelerateProbe
    from tracekit.integrations.lightning import LightningCallback
    from tracekit.integrations.transformers import TransformersCallback

__all__ = ["AccelerateProbe", "LightningCallback", "TransformersCallback"]

_HOME = {
    "AccelerateProbe": "tracekit.integrations.accelerate",
    "LightningCallback": "tracekit.integrations.lightning",
    "TransformersCallback": "tracekit.integrations.transformers",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'tracekit.integrations' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
