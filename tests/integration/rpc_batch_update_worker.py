"""Rank 0 is a synchronous parameter server (`ps`): it applies the gradients of all trainers in one step.

Trainers push their gradients and get the parameters back in one call, whose future is complete when the call of the
last trainer has come. Rank 2 computes longer, so the others wait for it at the server.

    torchrun ... rpc_batch_update_worker.py OUT DELAY_MS
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

import torch
import torch.distributed.rpc as rpc
from torch import Tensor, nn

import tracekit

STEPS = 8


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(8, 1)


class Server:
    def __init__(self, trainers: int) -> None:
        self.model = make_model()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.lock = threading.Lock()
        self.trainers = trainers
        self.gradients: list[list[Tensor]] = []
        self.future: torch.futures.Future[nn.Module] = torch.futures.Future()


server: Server


@rpc.functions.async_execution
def exchange(gradients: list[Tensor]) -> Any:
    """On the server: take a step when the gradients of all trainers are there, and answer all with the model."""
    with server.lock:
        server.gradients.append(gradients)
        future = server.future
        if len(server.gradients) == server.trainers:
            for parameter, *parts in zip(server.model.parameters(), *server.gradients, strict=True):
                parameter.grad = torch.stack(parts).mean(dim=0)
            server.gradients, server.future = [], torch.futures.Future()
            server.optimizer.step()
            future.set_result(server.model)
    return future


class Slow(torch.autograd.Function):
    """The identity, which takes time on the forward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, seconds: float) -> Tensor:
        threading.Event().wait(seconds)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


def main() -> None:
    global server
    out, delay_ms = sys.argv[1], float(sys.argv[2])
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    probe = tracekit.probe(path=out)
    if rank == 0:
        server = Server(world_size - 1)
    rpc.init_rpc("ps" if rank == 0 else f"trainer{rank}", rank=rank, world_size=world_size)
    if rank:
        model = make_model()

        @probe
        def train_step(x: Tensor) -> float:
            model.zero_grad()
            loss = Slow.apply(model(x), delay_ms / 1e3 if rank == 2 else 0.0).square().mean()  # type: ignore[no-untyped-call]
            loss.backward()
            gradients = [parameter.grad for parameter in model.parameters()]
            model.load_state_dict(rpc.rpc_sync("ps", exchange, args=(gradients,)).state_dict())
            return float(loss)

        for _ in range(STEPS):
            train_step(torch.randn(16, 8))
    rpc.shutdown()


if __name__ == "__main__":
    main()
