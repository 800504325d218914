"""What observers ask of torch's autograd engine."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["leaf_inputs", "runs_backward"]


def runs_backward() -> bool:
    """Return whether a backward pass runs on this thread."""
    return bool(sys.modules["torch"]._C._current_graph_task_id() != -1)


def leaf_inputs(inputs: Any) -> list[Any]:
    """Return the inputs of a call of `torch.autograd.grad` if all of them are leaves of the graph, else nothing."""
    tensors = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
    return tensors if all(getattr(tensor, "is_leaf", False) for tensor in tensors) else []
