"""Puts `tracekit.wait` spans around blocking waits for communication.

Every synchronous collective and every `work.wait()` of Python code ends in `Work.wait`, so one patch covers them all.
The wait of DDP's reducer at the end of a backward pass is in C++ and has no span.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from tracekit.capture.hooks.live_objects import LiveObjects
from tracekit.capture.hooks.patching import Patch
from tracekit.capture.hooks.span import span
from tracekit.capture.observers import MetadataDraft
from tracekit.model.spans import WAIT_SPAN

__all__ = ["WaitsObserver"]


class WaitsObserver:
    """Patches `Work.wait`."""

    def __init__(self) -> None:
        self._patch: Patch | None = None

    def attach(self, objects: LiveObjects) -> None:
        work = getattr(sys.modules.get("torch.distributed"), "Work", None)
        if work is not None:
            self._patch = Patch(work, "wait", _wait_in_span)
            self._patch.apply()

    def detach(self, objects: LiveObjects) -> None:
        if self._patch is not None:
            self._patch.remove()

    def contribute(self, draft: MetadataDraft) -> None:
        """Nothing: the spans are in the trace, and sequence ids come from the flight recorder."""


def _wait_in_span(wait: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    with span(WAIT_SPAN):
        return wait(*args, **kwargs)
