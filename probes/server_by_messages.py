"""A parameter server and its workers by send and receive, on the CPU; rank 0 is the server.

    torchrun --standalone --nproc-per-node 3 probes/server_by_messages.py --server-ms 30
    torchrun --standalone --nproc-per-node 3 probes/server_by_messages.py --slow-worker 1 --delay-ms 40

A worker computes gradients on its data, sends them and receives parameters. The server takes gradients from whichever
rank sends first, which only Gloo can, and answers it: each worker goes on at its own pace. It has no data of its own.

* `--server-ms D`: the server takes D ms for each gradient. Expected: the first finding says how much of the step the
  workers wait for rank 0, that it works D ms on each message, and, with workers enough, that its rate is the limit.
* `--slow-worker N --delay-ms D`: each step of worker N computes D ms longer. Expected: the first finding says how many
  steps a second it makes, and how many its peers, that it computes D ms longer, and that nobody waits for it.
* `--synchronous`: the server answers all workers when it has the gradients of all. With `--slow-worker`, the others
  wait D ms at the server for it.
* None of them: no rank is named.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn

import tracekit
from job import job, run_options
from sleeping import sleep, take_time

_Probe = Callable[[Callable[..., None]], Callable[..., None]]
SERVER = 0
WIDTH, BATCH = 64, 8


def flat(tensors: list[Tensor]) -> Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def serve(model: nn.Module, probe: _Probe, seconds: float, gradients: int, gather: int) -> None:
    """Take so many gradients, and answer each `gather` of them together."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    parameters = list(model.parameters())
    received = torch.empty(sum(parameter.numel() for parameter in parameters))

    @probe
    def answer() -> None:
        sources = []
        for _ in range(gather):
            sources.append(dist.recv(received))
            take_time(seconds, on_gpu=False)
            for parameter, part in zip(parameters, received.split([each.numel() for each in parameters]), strict=True):
                parameter.grad = part.view_as(parameter).clone()
            optimizer.step()
        for source in sources:
            dist.send(flat([parameter.data for parameter in parameters]), source)

    for _ in range(gradients // gather):
        answer()


def work(model: nn.Module, probe: _Probe, half_s: float, steps: int) -> None:
    """Train so many steps, each of which computes for twice `half_s`."""
    parameters = list(model.parameters())
    received = torch.empty(sum(parameter.numel() for parameter in parameters))

    @probe
    def train_step(x: Tensor) -> None:
        model.zero_grad()
        sleep(model(x), forward_s=half_s, backward_s=half_s).square().mean().backward()
        dist.send(flat([parameter.grad for parameter in parameters]), SERVER)
        dist.recv(received, SERVER)
        with torch.no_grad():
            for parameter, part in zip(parameters, received.split([each.numel() for each in parameters]), strict=True):
                parameter.copy_(part.view_as(parameter))

    for _ in range(steps):
        train_step(torch.randn(BATCH, WIDTH))


def main() -> None:
    parser = run_options("Training with a parameter server by send and receive.", out="runs/server_by_messages")
    parser.set_defaults(device="cpu")
    parser.add_argument("--steps", type=int, default=12, help="training steps of each worker")
    parser.add_argument(
        "--slow-worker", type=int, default=-1, metavar="N", help="rank of a worker that computes longer"
    )
    parser.add_argument("--delay-ms", type=float, default=40.0, help="by how much its step is longer")
    parser.add_argument("--server-ms", type=float, default=0.0, help="what the server takes for each gradient")
    parser.add_argument("--synchronous", action="store_true", help="the server answers when all workers have sent")
    parser.add_argument("--compute-ms", type=float, default=20.0, help="sleep of every step's forward and backward")
    options = parser.parse_args()
    with job(options) as process:
        workers = process.world_size - 1
        torch.manual_seed(0)
        model, probe = nn.Linear(WIDTH, WIDTH), tracekit.probe(options.out)
        if process.rank == SERVER:
            gather = workers if options.synchronous else 1
            serve(model, probe, options.server_ms / 1e3, options.steps * workers, gather)
        else:
            longer_ms = options.delay_ms if process.rank == options.slow_worker else 0.0
            work(model, probe, (options.compute_ms + longer_ms) / 2e3, options.steps)


if __name__ == "__main__":
    main()
