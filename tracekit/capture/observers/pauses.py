"""Puts spans around what holds the program up: waits for communication, garbage collections, checkpoints, logging.

Every synchronous collective and every `work.wait()` of Python code ends in `Work.wait`, so one patch covers them all.
The wait of DDP's reducer at the end of a backward pass is in C++ and has no span.

What is logged is seen where it leaves the program: as a record of `logging`, in the writers of TensorBoard and in the
clients of W&B and MLflow, and as text for the standard streams (`print`, progress bars).

An asynchronous save returns when the state is copied. What follows in the background runs on threads without spans. A
program that waits for its end, such as before the next save, gets a span for the wait.

torch itself writes a span around each batch of a `DataLoader`, but not around its start, which may start processes.
Collections of the youngest generation have no span: they are many and short.
"""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from tracekit.capture.hooks.live_objects import LiveObjects
from tracekit.capture.hooks.patching import ListedHook, Patch, PatchSet, fail_safe, patch_of
from tracekit.capture.hooks.span import span
from tracekit.capture.observers import MetadataDraft
from tracekit.model.spans import (
    DATA_SPAN,
    GARBAGE_COLLECTION_SPAN,
    WAIT_SPAN,
    CheckpointAction,
    checkpoint_span,
    logging_span,
)

# Modules offer one function under several names. Each name is patched, as programs use any of them.
_CHECKPOINTS: tuple[tuple[str, str, CheckpointAction, str], ...] = (
    ("torch", "save", "save", "torch.save"),
    ("torch.serialization", "save", "save", "torch.save"),
    ("torch", "load", "load", "torch.load"),
    ("torch.serialization", "load", "load", "torch.load"),
    ("torch.distributed.checkpoint", "save", "save", "torch.distributed.checkpoint"),
    ("torch.distributed.checkpoint", "load", "load", "torch.distributed.checkpoint"),
    ("torch.distributed.checkpoint.state_dict_saver", "save", "save", "torch.distributed.checkpoint"),
    ("torch.distributed.checkpoint.state_dict_loader", "load", "load", "torch.distributed.checkpoint"),
    ("safetensors.torch", "save_file", "save", "safetensors"),
    ("safetensors.torch", "load_file", "load", "safetensors"),
)
_ASYNC_SAVES = ("torch.distributed.checkpoint", "torch.distributed.checkpoint.state_dict_saver")
_LOGGING = (
    ("logging", "Logger", ("handle",)),
    *(
        (module, "SummaryWriter", ("add_scalar", "add_scalars", "add_histogram", "add_image", "add_images", "add_text"))
        for module in ("torch.utils.tensorboard.writer", "tensorboardX.writer")
    ),
    ("torch.utils.tensorboard.writer", "SummaryWriter", ("add_figure", "add_graph", "flush")),
    ("wandb.sdk.wandb_run", "Run", ("log",)),
    ("mlflow", None, ("log_metric", "log_metrics")),
)


class PausesObserver:
    """Patches what makes the program wait, and listens to the garbage collector."""

    def __init__(self) -> None:
        self._hooks = PatchSet()

    def attach(self, objects: LiveObjects) -> None:
        work = getattr(sys.modules.get("torch.distributed"), "Work", None)
        loader = getattr(sys.modules.get("torch.utils.data"), "DataLoader", None)
        hooks: list[Patch | ListedHook] = [ListedHook(gc.callbacks, _CollectionSpans())]
        if work is not None:
            hooks.append(Patch(work, "wait", _in_span(WAIT_SPAN)))
        if loader is not None:
            hooks.append(Patch(loader, "__iter__", _in_span(DATA_SPAN)))
        for module, name, action, function in _CHECKPOINTS:
            hooks += patch_of(module, None, name, _in_span(checkpoint_span(action, function)))
        for module in _ASYNC_SAVES:
            hooks += patch_of(module, None, "async_save", _async_save)
        for module, owner, names in _LOGGING:
            for name in names:
                hooks += patch_of(module, owner, name, _in_span(logging_span(f"{owner or module}.{name}")))
        self._hooks.apply(hooks)
        for name in ("stdout", "stderr"):
            write = Patch(getattr(sys, name), "write", _in_span(logging_span(name)))
            with contextlib.suppress(AttributeError, TypeError):  # a stream may be None, or take no attributes
                self._hooks.apply([write])

    def detach(self, objects: LiveObjects) -> None:
        self._hooks.remove()

    def contribute(self, draft: MetadataDraft) -> None:
        """Nothing: the spans are in the trace, and sequence ids come from the flight recorder."""


def _async_save(save: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    with span(checkpoint_span("async_save", "torch.distributed.checkpoint")):
        saving = save(*args, **kwargs)
    for name in ("staging_completion", "upload_completion"):
        _mark_waits(getattr(saving, name, None))
    _mark_waits(saving)
    return saving


def _mark_waits(future: Any) -> None:
    """Put a span around what waits for a future, as long as the recording runs."""
    if isinstance(future, Future):
        Patch(future, "result", _in_span(checkpoint_span("await", "torch.distributed.checkpoint"))).apply()


def _in_span(name: str) -> Callable[..., Any]:
    def call(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with span(name):
            return original(*args, **kwargs)

    return call


class _CollectionSpans:
    """A callback of the garbage collector. No collection begins while another runs, on any thread."""

    def __init__(self) -> None:
        self._open: Any = None
        self._begin = fail_safe(self._begin_span)
        self._end = fail_safe(self._end_span)

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"]:
            if phase == "start":
                self._begin()
            else:
                self._end()

    def _begin_span(self) -> None:
        self._open = None
        collection = span(GARBAGE_COLLECTION_SPAN)
        collection.__enter__()
        self._open = collection

    def _end_span(self) -> None:
        collection, self._open = self._open, None
        if collection is not None:  # None: it began before the recording
            collection.__exit__(None, None, None)
