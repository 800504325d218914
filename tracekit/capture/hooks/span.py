"""Opens spans in the trace, by the profiler's cheapest function, and answers what observers ask of torch's autograd."""

from __future__ import annotations

import re
import sys
from contextlib import AbstractContextManager
from typing import Any

__all__ = ["leaf_inputs", "runs_backward", "span"]

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
