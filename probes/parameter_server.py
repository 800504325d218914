"""A parameter server and its trainers, asynchronous, over torch.distributed.rpc; rank 0 is the server.

    torchrun --standalone --nproc-per-node 3 probes/parameter_server.py --slow-server-ms 20

A trainer pulls the parameters, computes gradients on its data and pushes them. The server applies gradients in the
order in which they come. The server has no training step. It creates the probe like the trainers, and writes what it
served to them when they have finished recording.

With `--slow-server-ms` the server takes that much longer for every pull. Expected: strategy rpc; every call of a step
is matched to its service; a finding says that waiting for remote calls takes most of the step, most for `pull` on
`ps`, that nearly all of a round trip is service, and advises to make `pull` faster. Without the delay the service time
is short.
"""

from __future__ import annotations

import os
import shlex
import threading

import torch
import torch.distributed.rpc as rpc
from torch import Tensor, nn

import tracekit
from job import choose_device, run_options
from sleeping import take_time

SERVER = "ps"
FEATURES, HIDDEN, BATCH = 32, 128, 64


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(FEATURES, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1)
    )


class ParameterServer:
    """The parameters and their optimizer."""

    def __init__(self) -> None:
        self.model = make_model()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.002)
        self.lock = threading.Lock()  # requests run on several threads
        self.on_gpu = False

    def move(self, device: torch.device) -> None:
        self.model.to(device)
        self.on_gpu = device.type == "cuda"


server = ParameterServer()  # only that of rank 0 is used


def pull(delay_s: float) -> list[Tensor]:
    """On the server: return the current parameters, after computing for `delay_s`. Only tensors of a CPU are sent."""
    take_time(delay_s, on_gpu=server.on_gpu)
    with server.lock:
        return [parameter.detach().to("cpu", copy=True) for parameter in server.model.parameters()]


def push(gradients: list[Tensor]) -> None:
    """On the server: take an optimizer step with a trainer's gradients."""
    with server.lock:
        for parameter, gradient in zip(server.model.parameters(), gradients, strict=True):
            parameter.grad = gradient.to(parameter.device)
        server.optimizer.step()


def main() -> None:
    parser = run_options("Training with an asynchronous parameter server.", out="runs/parameter_server")
    parser.add_argument("--steps", type=int, default=8, help="training steps of each trainer")
    parser.add_argument("--slow-server-ms", type=float, default=0.0, help="added to every pull")
    arguments = parser.parse_args()
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = choose_device(arguments)
    probe = tracekit.probe(arguments.out)  # on the server, too, before it serves calls

    if rank == 0:
        server.move(device)
        rpc.init_rpc(SERVER, rank=rank, world_size=world_size)
    else:
        rpc.init_rpc(f"trainer{rank}", rank=rank, world_size=world_size)
        model, loss_of = make_model().to(device), nn.MSELoss()
        torch.manual_seed(rank)
        data = [torch.randn(BATCH, FEATURES).to(device) for _ in range(arguments.steps)]

        @probe
        def train_step(x: Tensor) -> float:
            pulled = rpc.rpc_sync(SERVER, pull, args=(arguments.slow_server_ms / 1e3,))
            with torch.no_grad():
                for parameter, value in zip(model.parameters(), pulled, strict=True):
                    parameter.copy_(value)
            model.zero_grad()
            loss = loss_of(model(x), x.sum(dim=1, keepdim=True))
            loss.backward()
            gradients = [parameter.grad.cpu() for parameter in model.parameters()]
            rpc.rpc_async(SERVER, push, args=(gradients,)).wait()
            loss_now: float = loss.item()
            return loss_now

        losses = [train_step(x) for x in data]
        print(f"trainer {rank}: loss {losses[0]!r} to {losses[-1]!r}")
    rpc.shutdown()
    if rank == 0:
        print(f"\nNext: tracekit analyze {shlex.quote(str(arguments.out))}")


if __name__ == "__main__":
    main()
