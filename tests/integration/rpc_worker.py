"""Rank 0 serves (`ps`), rank 1 trains with every kind of remote call, rank 2 is a peer without a probe (`bare`).

The trainer takes the same steps without and with the decorator, and writes the results of both.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import torch
import torch.distributed.rpc as rpc
from torch import Tensor, nn

import tracekit
from tracekit.capture.rpc import serving

STEPS, SERVICE_S, CALLS_OF_BARE = 8, 0.01, 20


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(8, 1)


class Server:
    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.model = make_model()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)


class Counter:
    """Lives on the server, behind an RRef."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, amount: int) -> int:
        self.count += amount
        return self.count


server = Server()


def reset() -> None:
    server.reset()


def pull() -> list[Tensor]:
    threading.Event().wait(SERVICE_S)
    return [parameter.detach().clone() for parameter in server.model.parameters()]


def push(gradients: list[Tensor]) -> None:
    for parameter, gradient in zip(server.model.parameters(), gradients, strict=True):
        parameter.grad = gradient
    server.optimizer.step()


def double(x: Tensor) -> Tensor:
    return x * 2


def fail() -> None:
    raise KeyError("nothing of this name")


@rpc.functions.async_execution
def relayed(x: Tensor) -> Any:
    """On the server: ask another worker, and answer when it has answered."""
    return rpc.rpc_async("bare", double, args=(x,))


@torch.jit.script
def scripted(x: Tensor) -> Tensor:
    return x + 1


def train_step(model: nn.Module, x: Tensor) -> list[Any]:
    """Take a step; return its loss and the results of the other kinds of calls."""
    pulled = rpc.rpc_sync("ps", pull)
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), pulled, strict=True):
            parameter.copy_(value)
    model.zero_grad()
    loss = (model(x) - x.sum(dim=1, keepdim=True)).square().mean()
    loss.backward()
    pushed = rpc.rpc_async("ps", push, args=([parameter.grad for parameter in model.parameters()],))
    doubled = torch.futures.wait_all([rpc.rpc_async("ps", double, args=(x[0],)) for _ in range(2)])
    pushed.wait()
    counter = rpc.remote("ps", Counter)
    counts = [counter.rpc_sync().add(2), counter.rpc_async().add(3).wait(), counter.remote().add(4).to_here()]
    try:
        rpc.rpc_sync("ps", fail)
        failure = []
    except RuntimeError as error:  # torch wraps the error
        failure = [type(error).__name__, "nothing of this name" in str(error)]
    others = [
        rpc.rpc_sync("ps", relayed, args=(x[0],)),
        rpc.rpc_sync("trainer", double, args=(x[0],)),  # this worker itself
        rpc.rpc_sync("bare", double, args=(x[0],)),
        rpc.rpc_sync("ps", torch.add, args=(x[0], x[1])),
        rpc.rpc_sync("ps", scripted, args=(x[0],)),
    ]
    return [loss.item(), counts, failure, *(value.tolist() for value in [*doubled, *others])]


def train(out: Path) -> None:
    torch.manual_seed(1)
    data = torch.randn(STEPS, 16, 8)
    outcomes = {}
    recorded = tracekit.probe(path=out)(train_step)
    for name, step in (("undecorated", train_step), ("decorated", recorded)):
        rpc.rpc_sync("ps", reset)
        model = make_model()
        outcomes[name] = [step(model, x) for x in data]
    (out / "outcomes.json").write_text(json.dumps(outcomes))


def main() -> None:
    out = Path(sys.argv[1])
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if rank == 0:
        serving.IDLE_TIMEOUT_S = 600.0  # one batch, written at the shutdown, also on a slow machine
        tracekit.probe(path=out)
    rpc.init_rpc(("ps", "trainer", "bare")[rank], rank=rank, world_size=world_size)
    if rank == 1:
        train(out)
    elif rank == 2:
        for i in range(CALLS_OF_BARE):
            assert rpc.rpc_sync("ps", double, args=(torch.tensor(float(i)),)).item() == 2.0 * i
    rpc.shutdown()


if __name__ == "__main__":
    main()
