"""Records training that marks its phases, one process. Each scenario has its folder below `<out>`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("KINETO_LOG_LEVEL", "99")

import torch
from torch import Tensor, nn
from torch._dynamo import compiled_autograd

from tests.integration.marked_training import MarkedLBFGS, MarkedSGD, Network, batches, loss_of
from tracekit.capture.probe import probe

STEPS = 6


def with_lbfgs(network: Network) -> Callable[[Tensor], None]:
    optimizer = MarkedLBFGS(network.parameters(), lr=0.01, max_iter=3, tolerance_grad=0, tolerance_change=0)

    def step(batch: Tensor) -> None:
        def closure() -> Tensor:
            optimizer.zero_grad(set_to_none=False)
            loss = loss_of(network, batch)
            loss.backward()
            return loss

        optimizer.step(closure)

    return step


def with_a_compiled_module(network: Network) -> Callable[[Tensor], None]:
    optimizer = MarkedSGD(network.parameters(), lr=0.01)
    network.layers = torch.compile(network.layers, backend="aot_eager")

    def step(batch: Tensor) -> None:
        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = loss_of(network, batch)
            loss.backward()
            return loss

        optimizer.step(closure)

    return step


def with_compiled_autograd(network: Network) -> Callable[[Tensor], None]:
    optimizer = MarkedSGD(network.parameters(), lr=0.01)

    def step(batch: Tensor) -> None:
        optimizer.zero_grad()
        loss = loss_of(network, batch)
        with compiled_autograd._enable(lambda graph: torch.compile(graph, backend="eager")):
            loss.backward()
        optimizer.step()

    return step


def with_a_scaler(network: Network) -> Callable[[Tensor], None]:
    optimizer = MarkedSGD(network.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu")

    def step(batch: Tensor) -> None:
        optimizer.zero_grad()
        scaler.scale(loss_of(network, batch)).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()

    return step


def main() -> None:
    out = Path(sys.argv[1])
    for scenario in (with_lbfgs, with_a_compiled_module, with_compiled_autograd, with_a_scaler):
        torch.manual_seed(0)
        recorder = probe(path=out / scenario.__name__, skip=2, warmup=1, steps=3)
        step = recorder(scenario(Network()))
        for batch in batches(STEPS + 1):
            step(batch)
        recorder.finish()


if __name__ == "__main__":
    main()
