"""How observers write spans into the trace, around a block of code or around the forward passes of modules.

Spans are opened by the profiler's cheapest function. Two functions ask torch's autograd whether a backward pass runs,
and which inputs are leaves.
"""

from __future__ import annotations

import re
import sys
import threading
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from tracekit.capture.hooks.patching import fail_safe

_UNSAFE = re.compile(r"[^A-Za-z0-9_.:=|#<> \-]")
_MAX_NAMES = 4096
_safe_names: dict[str, str] = {}


def span(name: str) -> AbstractContextManager[Any]:
    """Return a context manager that records a span; it costs 0.2 us while the profiler does not run.

    torch does not escape names, and a quote in one makes the whole file invalid: unusual characters become `_`.
    """
    safe = _safe_names.get(name)
    if safe is None:
        safe = _sanitized(name)
    recorded: AbstractContextManager[Any] = sys.modules["torch"]._C._profiler._RecordFunctionFast(safe)
    return recorded


def _sanitized(name: str) -> str:
    if len(_safe_names) >= _MAX_NAMES:  # names that carry a number are not worth keeping
        _safe_names.clear()
    safe = _safe_names[name] = _UNSAFE.sub("_", name)
    return safe


def runs_backward() -> bool:
    """Return whether a backward pass runs on this thread."""
    return bool(sys.modules["torch"]._C._current_graph_task_id() != -1)


def leaf_inputs(inputs: Any) -> list[Any]:
    """Return the inputs of a call of `torch.autograd.grad` if all of them are leaves of the graph, else nothing."""
    tensors = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
    return tensors if all(getattr(tensor, "is_leaf", False) for tensor in tensors) else []


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
