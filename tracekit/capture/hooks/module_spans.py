"""Puts spans around the forward passes of modules, by hooks."""

from __future__ import annotations

import sys
import threading
from functools import partial
from typing import Any

from tracekit.capture.hooks.patching import fail_safe
from tracekit.capture.hooks.span import runs_backward, span

__all__ = ["ForwardSpans"]


class ForwardSpans:
    """Spans around each forward of the added modules, until they are removed.

    With `outermost`, only forwards that run inside no other added module's, and none that a backward pass recomputes
    for a checkpoint.
    """

    def __init__(self, *, outermost: bool = False) -> None:
        self._outermost = outermost
        self._hooks: list[Any] = []
        # By thread: the modules whose forwards are running, the innermost last, each with its span if it has one.
        self._running: dict[int, list[tuple[Any, Any]]] = {}

    def add(self, module: Any, label: str | None, evaluation: str | None = None) -> None:
        """Add a module; one of TorchScript takes no hooks, so it stays without spans.

        label: of its forwards; None: they have no span. evaluation: the label of those in evaluation mode that run
        without gradients, if it is another.
        """
        if isinstance(module, sys.modules["torch"].jit.ScriptModule):
            return
        # Before the user's hooks: one of them may raise, and then later hooks are not called.
        before = module.register_forward_pre_hook(fail_safe(partial(self._begin, label, evaluation)), prepend=True)
        self._hooks += [before, module.register_forward_hook(fail_safe(self._end), always_call=True)]

    def remove(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def _begin(self, label: str | None, evaluation: str | None, module: Any, *_: Any) -> None:
        torch = sys.modules["torch"]
        if torch.compiler.is_compiling():
            return
        running = self._running.setdefault(threading.get_ident(), [])
        if evaluation is not None and not module.training and not torch.is_grad_enabled():
            label = evaluation
        with_span = not self._outermost or (not running and not runs_backward())
        entered = span(label) if with_span and label is not None else None
        if entered is not None:
            entered.__enter__()
        running.append((module, entered))

    def _end(self, module: Any, *_: Any) -> None:
        running = self._running.get(threading.get_ident())
        if running and running[-1][0] is module:
            entered = running.pop()[1]
            if entered is not None:
                entered.__exit__(None, None, None)
