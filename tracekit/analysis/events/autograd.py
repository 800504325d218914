"""Spans in which PyTorch's autograd engine runs the nodes of a backward pass."""

from __future__ import annotations

__all__ = ["AUTOGRAD_NODE_PREFIX", "is_autograd_node"]

AUTOGRAD_NODE_PREFIX = "autograd::engine::evaluate_function: "
"""What the name of such a span begins with; the node's name follows."""


def is_autograd_node(name: str) -> bool:
    """Return whether the event of this name is a node of a backward pass."""
    return name.startswith(AUTOGRAD_NODE_PREFIX)
