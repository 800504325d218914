"""A parameter server and its trainers, asynchronous, over torch.distributed.rpc; rank 0 is the server.

    torchrun --standalone --nproc-per-node 3 probes/parameter_server.py --slow-server-ms 20
    torchrun --standalone --nproc-per-node 4 probes/parameter_server.py --slow-trainer 2 --delay-ms 100

A trainer pulls the parameters, computes gradients on its data and pushes them. The server applies gradients in the
order in which they come. Trainers do not wait for each other: each goes on until all have taken `--steps` steps. The
server has no training step. It creates the probe like the trainers, and writes what it served to them when they have
finished recording.

* `--slow-trainer N --delay-ms D`: each step of trainer N computes D ms longer. Expected: the first finding says how
  many steps a second trainer N makes, and how many its peers, and that nobody waits for it.
* `--slow-server-ms D`: the server takes that much longer for every pull. Expected: waiting for remote calls takes most
  of the step, most for `pull` on `ps`, and nearly all of a round trip is service.
* `--lock-server`: it takes that time while it holds its lock, so that one call waits for another.
* Neither: no trainer is named.
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
from sleeping import sleep, take_time

SERVER = "ps"
FEATURES, HIDDEN, BATCH = 32, 128, 64


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(FEATURES, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1)
    )


class ParameterServer:
    """The parameters, their optimizer, and how many updates each trainer has brought."""

    def __init__(self) -> None:
        self.model = make_model()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.002)
        self.lock = threading.Lock()  # requests run on several threads
        self.on_gpu = False
        self.updates: dict[int, int] = {}  # by trainer

    def start(self, device: torch.device, trainers: range) -> None:
        self.model.to(device)
        self.on_gpu = device.type == "cuda"
        self.updates = dict.fromkeys(trainers, 0)


server = ParameterServer()  # only that of rank 0 is used


def pull(delay_s: float, locked: bool) -> list[Tensor]:
    """On the server: return the parameters, after `delay_s`. Only tensors of a CPU are sent."""
    if not locked:
        take_time(delay_s, on_gpu=server.on_gpu)
    with server.lock:
        if locked:
            take_time(delay_s, on_gpu=server.on_gpu)
        return [parameter.detach().to("cpu", copy=True) for parameter in server.model.parameters()]


def push(trainer: int, gradients: list[Tensor]) -> int:
    """On the server: take an optimizer step with the gradients of a trainer.

    Returns how many steps the trainer with the fewest has taken.
    """
    with server.lock:
        for parameter, gradient in zip(server.model.parameters(), gradients, strict=True):
            parameter.grad = gradient.to(parameter.device)
        server.optimizer.step()
        server.updates[trainer] += 1
        return min(server.updates.values())


def main() -> None:
    parser = run_options("Training with an asynchronous parameter server.", out="runs/parameter_server")
    parser.add_argument("--steps", type=int, default=8, help="training steps that each trainer takes at least")
    parser.add_argument("--slow-trainer", type=int, metavar="N", help="rank of a trainer that computes longer")
    parser.add_argument("--delay-ms", type=float, default=100.0, help="by how much its step is longer")
    parser.add_argument("--slow-server-ms", type=float, default=0.0, help="added to every pull")
    parser.add_argument("--lock-server", action="store_true", help="hold the server's lock for that time")
    parser.add_argument("--compute-ms", type=float, default=10.0, help="sleep of every step's forward and backward")
    arguments = parser.parse_args()
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if arguments.slow_trainer is not None and not 1 <= arguments.slow_trainer < world_size:
        parser.error(f"--slow-trainer: the trainers are ranks 1 to {world_size - 1}")
    device = choose_device(arguments)
    probe = tracekit.probe(arguments.out)  # on the server, too, before it serves calls

    if rank == 0:
        server.start(device, range(1, world_size))
        rpc.init_rpc(SERVER, rank=rank, world_size=world_size)
    else:
        rpc.init_rpc(f"trainer{rank}", rank=rank, world_size=world_size)
        model, loss_of = make_model().to(device), nn.MSELoss()
        torch.manual_seed(rank)
        longer_s = arguments.delay_ms / 1e3 if rank == arguments.slow_trainer else 0.0
        half_s = arguments.compute_ms / 2e3
        delay = (arguments.slow_server_ms / 1e3, arguments.lock_server)

        @probe
        def train_step(x: Tensor) -> tuple[float, int]:
            pulled = rpc.rpc_sync(SERVER, pull, args=delay)
            with torch.no_grad():
                for parameter, value in zip(model.parameters(), pulled, strict=True):
                    parameter.copy_(value)
            model.zero_grad()
            output = sleep(model(x), forward_s=half_s + longer_s, backward_s=half_s)
            loss = loss_of(output, x.sum(dim=1, keepdim=True))
            loss.backward()
            gradients = [parameter.grad.cpu() for parameter in model.parameters()]
            fewest = rpc.rpc_async(SERVER, push, args=(rank, gradients)).wait()
            return loss.item(), fewest

        losses, fewest = [], 0
        while fewest < arguments.steps:
            loss, fewest = train_step(torch.randn(BATCH, FEATURES).to(device))
            losses.append(loss)
        print(f"trainer {rank}: {len(losses)} steps, loss {losses[0]!r} to {losses[-1]!r}")
    rpc.shutdown()
    if rank == 0:
        print(f"\nNext: tracekit analyze {shlex.quote(str(arguments.out))}")


if __name__ == "__main__":
    main()
