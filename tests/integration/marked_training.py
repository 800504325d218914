"""A network and an optimizer that mark their phases with spans of their own, which the analysis does not know.

For workers of the tests. `phase_truth.py` compares the marks with the phases that the analysis finds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.profiler import record_function

from tests.integration.phase_truth import mark

WIDTH = 16


class _MarkedBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        with record_function(mark("backward")):
            return gradient.clone()


class Network(nn.Module):
    """Returns its loss in the form that transformers expects. Its forward begins and ends with plain Python."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        with record_function(mark("forward")):
            sum(range(20_000))
            loss = _MarkedBackward.apply(self.layers(x)).square().mean()
            sum(range(20_000))
        return {"loss": loss}


class MarkedSGD(torch.optim.SGD):
    """Evaluates its closure, if it has one, before it updates."""

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with record_function(mark("optimizer")):
            sum(range(20_000))
            super().step()
        return loss


class MarkedLBFGS(torch.optim.LBFGS):
    """Marks what it adds to its parameters between two calls of its closure."""

    def _add_grad(self, step_size: float, direction: Tensor) -> None:
        with record_function(mark("optimizer")):
            super()._add_grad(step_size, direction)


def batches(count: int) -> list[Tensor]:
    return [torch.full((4, WIDTH), (number + 1) / count) for number in range(count)]


def loss_of(network: Network, batch: Tensor) -> Tensor:
    loss: Tensor = network(batch)["loss"]
    return loss
