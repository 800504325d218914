"""Puts spans around what holds the program up: waits for communication, garbage collections, saves of checkpoints.

Every synchronous collective and every `work.wait()` of Python code ends in `Work.wait`, so one patch covers them all.
The wait of DDP's reducer at the end of a backward pass is in C++ and has no span.

torch itself writes a span around each batch of a `DataLoader`, but not around its start, which may start processes.
Collections of the youngest generation have no span: they are many and short.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

from tracekit.capture.hooks.live_objects import LiveObjects
from tracekit.capture.hooks.patching import ListedHook, Patch, fail_safe
from tracekit.capture.hooks.span import span
from tracekit.capture.observers import MetadataDraft
from tracekit.model.spans import CHECKPOINT_SPAN, DATA_SPAN, GARBAGE_COLLECTION_SPAN, WAIT_SPAN

# Modules offer one function under several names. Each name is patched, as programs use any of them.
_SAVES = (
    ("torch", "save"),
    ("torch.serialization", "save"),
    ("torch.distributed.checkpoint", "save"),
    ("torch.distributed.checkpoint", "async_save"),
    ("torch.distributed.checkpoint.state_dict_saver", "save"),
    ("torch.distributed.checkpoint.state_dict_saver", "async_save"),
    ("safetensors.torch", "save_file"),
)

__all__ = ["PausesObserver"]


class PausesObserver:
    """Patches `Work.wait`, functions that save, and the start of data loaders; listens to the garbage collector."""

    def __init__(self) -> None:
        self._hooks: list[Patch | ListedHook] = []

    def attach(self, objects: LiveObjects) -> None:
        work = getattr(sys.modules.get("torch.distributed"), "Work", None)
        loader = getattr(sys.modules.get("torch.utils.data"), "DataLoader", None)
        self._hooks = [ListedHook(gc.callbacks, _CollectionSpans())]
        if work is not None:
            self._hooks.append(Patch(work, "wait", _in_span(WAIT_SPAN)))
        if loader is not None:
            self._hooks.append(Patch(loader, "__iter__", _in_span(DATA_SPAN)))
        for module, name in _SAVES:
            place = sys.modules.get(module)
            if place is not None and name in vars(place):
                self._hooks.append(Patch(place, name, _in_span(CHECKPOINT_SPAN)))
        for hook in self._hooks:
            hook.apply()

    def detach(self, objects: LiveObjects) -> None:
        for hook in reversed(self._hooks):
            hook.remove()
        self._hooks = []

    def contribute(self, draft: MetadataDraft) -> None:
        """Nothing: the spans are in the trace, and sequence ids come from the flight recorder."""


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
