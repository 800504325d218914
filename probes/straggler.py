"""Data-parallel training (DDP) in which one rank delays all others, for one of four causes.

    torchrun --standalone --nproc-per-node 4 probes/straggler.py --cause data --rank 2 --delay-ms 20 --sleep-compute

It uses NCCL if every process of the host has a GPU, else Gloo. A step of `--rank` takes `--delay-ms` longer. Expected
findings, each with about that delay, while the other ranks wait:

* `--cause compute`: "Straggler: rank 2 computes ... longer than its peers": its operations take longer.
* `--cause more_work`: the same sentence with "it has more work": the rank has more operations.
* `--cause host`: "Straggler: rank 2 spends ... longer in Python": Python sleeps between forward and backward.
* `--cause data`: "rank 2 loads data for ... longer": its samples are slow to load.
* `--cause none`: no rank is named.

`--sleep-compute`: layers sleep inside an autograd function, so more ranks than cores behave like devices.
`--jitter 0.1`: each step of each rank takes up to a tenth longer, at random; `--seed` sets the random numbers.
"""

from __future__ import annotations

import argparse
import itertools
import random

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

import tracekit
from job import Job, job, run_options
from sleeping import SleepyLinear, SleepySamples, sleep, sleep_on_host

WIDTH, BLOCKS, BATCH = 256, 6, 16
SLEEP_S = 0.005
MORE_OPERATIONS = 20


class Network(nn.Module):
    """Every rank has the same operations. One sleeps `longer_s`, or `more` operations are added for that time."""

    def __init__(self, forward_s: float, longer_s: float, more: int) -> None:
        super().__init__()
        layers = [SleepyLinear(WIDTH, forward_s) if forward_s else nn.Linear(WIDTH, WIDTH) for _ in range(BLOCKS)]
        self.blocks = nn.ModuleList(layers)
        self.longer_s = longer_s
        self.more = more
        self.jitter_s = 0.0

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = torch.tanh(block(x))
        x = sleep(x, forward_s=self.jitter_s + (0.0 if self.more else self.longer_s))
        for _ in range(self.more):
            x = sleep(x, forward_s=self.longer_s / self.more)
        return x


def main() -> None:
    options = parse_options()
    with job(options) as process:
        training(process, options)  # its model is gone before the process group is, which DDP holds


def training(process: Job, options: argparse.Namespace) -> None:
    torch.manual_seed(0)
    cause = options.cause if process.rank == options.rank else "none"
    delay_s = options.delay_ms / 1000
    longer_s = delay_s if cause in ("compute", "more_work") else 0.0
    more = MORE_OPERATIONS if cause == "more_work" else 0
    network = Network(SLEEP_S if options.sleep_compute else 0.0, longer_s, more).to(process.device)
    model = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    varied = random.Random(1000 * options.seed + process.rank)

    @tracekit.probe(path=options.out, steps=options.recorded)
    def train_step(batch: Tensor) -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        x = batch.to(process.device)
        network.jitter_s = varied.random() * options.jitter * 3 * BLOCKS * SLEEP_S
        loss = nn.functional.mse_loss(model(x), torch.roll(x, 1, dims=-1))
        if cause == "host":
            sleep_on_host(delay_s)
        loss.backward()
        optimizer.step()
        return loss.detach()

    for step, batch in enumerate(loader(options, process, delay_s if cause == "data" else 0.0)):
        loss = train_step(batch)
        if process.rank == 0:
            print(f"step {step}: loss {loss.item():.4f}")


def loader(options: argparse.Namespace, process: Job, slow_s: float) -> itertools.islice[Tensor]:
    """Return the batches of this rank; each takes `slow_s` seconds to load."""
    torch.manual_seed(1 + process.rank)
    count = options.recorded + 5
    samples = SleepySamples(count * BATCH, WIDTH, slow_s / BATCH)
    return itertools.islice(DataLoader(samples, batch_size=BATCH), count)


def parse_options() -> argparse.Namespace:
    parser = run_options("Data-parallel training with a straggler of one of four kinds.", out="runs/straggler")
    parser.add_argument("--recorded", type=int, default=6, help="steps that are recorded, from the fifth on")
    parser.add_argument("--cause", choices=("none", "compute", "more_work", "host", "data"), default="compute")
    parser.add_argument("--rank", type=int, default=1, help="rank that delays the others")
    parser.add_argument("--delay-ms", type=float, default=20.0, help="by how much, a step")
    parser.add_argument("--jitter", type=float, default=0.0, help="fraction by which a step of each rank varies")
    parser.add_argument("--seed", type=int, default=0, help="of the random numbers")
    parser.add_argument("--sleep-compute", action="store_true", help="sleep instead of computing")
    return parser.parse_args()


if __name__ == "__main__":
    main()
