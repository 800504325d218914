"""Layers (as autograd functions) and data loading that sleep: they take time, as on a device, but no core.

So four ranks behave on two cores as on four devices, and a planted delay looks like compute.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset


class _Sleep(torch.autograd.Function):
    """The identity; it sleeps in the forward and in the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, forward_s: float, backward_s: float) -> Tensor:
        ctx.backward_s = backward_s
        if forward_s:
            time.sleep(forward_s)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        if ctx.backward_s:
            time.sleep(ctx.backward_s)
        return gradient, None, None


class _SleepyLinear(torch.autograd.Function):
    """A linear layer of equal widths that sleeps instead of multiplying; its gradients have the real shapes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, forward_s: float) -> Tensor:
        ctx.save_for_backward(weight, bias)
        ctx.forward_s = forward_s
        time.sleep(forward_s)
        return x + bias

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        weight, bias = ctx.saved_tensors
        time.sleep(2 * ctx.forward_s)
        return gradient, torch.full_like(weight, 1e-6), torch.full_like(bias, 1e-6), None


def sleep(x: Tensor, *, forward_s: float = 0.0, backward_s: float = 0.0) -> Tensor:
    """Return `x` after `forward_s` seconds of compute; its gradient takes `backward_s` seconds."""
    slept: Tensor = _Sleep.apply(x, forward_s, backward_s)
    return slept


class SleepyLinear(nn.Module):
    """`nn.Linear(width, width)` that takes `forward_s` seconds forward and twice that backward, on any machine."""

    def __init__(self, width: int, forward_s: float) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.forward_s = forward_s

    def forward(self, x: Tensor) -> Tensor:
        slept: Tensor = _SleepyLinear.apply(x, self.linear.weight, self.linear.bias, self.forward_s)
        return slept


class SleepySamples(Dataset[Tensor]):
    """Random rows of `width`, each of which takes `loading_s` to load."""

    def __init__(self, count: int, width: int, loading_s: float) -> None:
        self.rows = torch.randn(count, width)
        self.loading_s = loading_s

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Tensor:
        if self.loading_s:
            time.sleep(self.loading_s)
        return self.rows[index]
