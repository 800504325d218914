"""A data-parallel training run: a small residual MLP on synthetic data, every rank with its own batches.

    torchrun --standalone --nproc-per-node 2 probes/ddp.py --slow-rank 1 --delay-ms 20 --sleep-compute

It uses NCCL if every process of the host has a GPU, else Gloo. Expected findings (with fewer cores than ranks only with
`--sleep-compute`: processes that share cores slow each other down, and the report then says so):

* `--slow-rank 1 --delay-ms 20`: "Straggler: rank 1 computes ... longer than its peer", about 20 ms a
  step. It waits in the gradient all-reduces. The delay is in the backward pass of an autograd function, so it
  is compute.
* Without these options no rank is named.
* `--bucket-cap-mb` sets the number of gradient buckets. There are 12 MB of gradients: 1 MB gives about a dozen buckets,
  25 MB a single one that nothing overlaps.
* `--sleep-compute`: layers sleep inside an autograd function, so more ranks than cores behave like devices.

DDP's other settings, such as hooks and accumulation, are in ddp_settings.py.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import tracekit
from job import Job, add_slow_rank, job, planted_delay_s, train, training_options
from sleeping import SleepyLinear, sleep

LAYERS, BATCH = 6, 64
SLEEP_S = 0.004


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.relu(self.linear(x))


class Network(nn.Module):
    def __init__(self, width: int, delay_s: float, sleep_compute: bool) -> None:
        super().__init__()
        blocks = (SleepyLinear(width, SLEEP_S) if sleep_compute else Block(width) for _ in range(LAYERS * 2))
        self.blocks = nn.ModuleList(blocks)
        self.head = nn.Linear(width, 10)
        self.delay_s = delay_s

    def forward(self, x: Tensor) -> Tensor:
        for number, block in enumerate(self.blocks):
            if number == LAYERS and self.delay_s:
                x = sleep(x, backward_s=self.delay_s)
            x = block(x)
        return self.head(x)


def main() -> None:
    options = parse_options()
    with job(options) as process:
        training(process, options)  # its model is gone before the process group is, which DDP holds


def training(process: Job, options: argparse.Namespace) -> None:
    torch.manual_seed(0)
    delay_s = planted_delay_s(options, process)
    network = Network(options.width, delay_s, options.sleep_compute).to(process.device)
    model = DistributedDataParallel(network, bucket_cap_mb=options.bucket_cap_mb)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    batches = torch.Generator().manual_seed(1 + process.rank)

    @tracekit.probe(path=options.out, steps=options.recorded)
    def train_step() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        x = torch.randn(BATCH, options.width, generator=batches).to(process.device)
        target = torch.randint(10, (BATCH,), generator=batches).to(process.device)
        loss = nn.functional.cross_entropy(model(x), target)
        loss.backward()
        optimizer.step()
        return loss.detach()

    train(train_step, options.steps, prints=process.rank == 0)


def parse_options() -> argparse.Namespace:
    parser = training_options("Data-parallel training with a planted straggler.", out="runs/ddp", steps=11, recorded=6)
    add_slow_rank(parser, "whose backward pass is delayed")
    parser.add_argument("--bucket-cap-mb", type=float, default=4.0, help="DDP's bucket size limit, MiB")
    parser.add_argument(
        "--width", type=int, default=512, help="of the layers; twice as many have four times the gradients"
    )
    parser.add_argument("--sleep-compute", action="store_true", help="sleep instead of computing")
    return parser.parse_args()


if __name__ == "__main__":
    main()
