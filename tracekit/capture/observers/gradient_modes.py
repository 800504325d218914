"""Puts spans around blocks without gradients, `no_grad` and `inference_mode`, in jobs of several processes.

An evaluation is such a block with a forward in it (`forwards.py`). It may be much more than the forward: it loads
batches and reduces metrics. A block has a span if gradients were on before it and no backward pass runs.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

from tracekit.capture.hooks.live_objects import LiveObjects
from tracekit.capture.hooks.patching import Patch, patch_of
from tracekit.capture.hooks.span import runs_backward, span
from tracekit.capture.job.process import several_processes
from tracekit.capture.observers import MetadataDraft
from tracekit.model.spans import NO_GRAD_SPAN

_BLOCKS = ("no_grad", "inference_mode")

__all__ = ["GradientModeObserver"]


class GradientModeObserver:
    """Patches how these blocks are entered and left."""

    def __init__(self) -> None:
        self._patches: list[Patch] = []
        self._open: dict[int, tuple[Any, Any]] = {}  # by thread: the block and its span

    def attach(self, objects: LiveObjects) -> None:
        for block in _BLOCKS if several_processes() else ():
            self._patches += patch_of("torch.autograd.grad_mode", block, "__enter__", self._enter)
            self._patches += patch_of("torch.autograd.grad_mode", block, "__exit__", self._exit)
        for patch in self._patches:
            patch.apply()

    def detach(self, objects: LiveObjects) -> None:
        for patch in reversed(self._patches):
            patch.remove()
        self._patches, self._open = [], {}

    def contribute(self, draft: MetadataDraft) -> None:
        """Nothing: the spans are in the trace."""

    def _enter(self, enter: Callable[..., Any], block: Any) -> Any:
        thread = threading.get_ident()
        opens = sys.modules["torch"].is_grad_enabled() and thread not in self._open and not runs_backward()
        entered = enter(block)
        if opens:
            around = span(NO_GRAD_SPAN)
            around.__enter__()
            self._open[thread] = block, around
        return entered

    def _exit(self, leave: Callable[..., Any], block: Any, *error: Any) -> Any:
        thread = threading.get_ident()
        opened, around = self._open.get(thread, (None, None))
        if opened is block:
            del self._open[thread]
            around.__exit__(None, None, None)
        return leave(block, *error)
