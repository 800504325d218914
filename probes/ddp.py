"""A data-parallel training run: a small residual MLP on synthetic data, every rank with its own batches.

    torchrun --standalone --nproc-per-node 2 probes/ddp.py --slow-rank 1 --delay-ms 20 --sleep-compute

It uses NCCL if every process of the host has a GPU, else Gloo. Expected findings (with fewer cores than ranks only with
`--sleep-compute`: processes that share cores slow each other down, and the report then says so):

* `--slow-rank 1 --delay-ms 20`: "rank 1 computes ... longer than its peer, which waits for it", about 20 ms a
  step. It waits in the gradient all-reduces. The delay is in the backward pass of an autograd function, so it
  is compute.
* Without these options no rank is named.
* `--bucket-cap-mb` sets the number of gradient buckets. There are 12 MB of gradients: 1 MB gives about a dozen buckets,
  25 MB a single one that nothing overlaps.
* `--accumulate 4`: a step has four micro-batches; only the last one has all-reduces.
* `--comm-hook fp16`: gradients are reduced as float16, half the bytes; each bucket's hook is a span in the trace.
* `--batch-norm`: its buffers are broadcast at the beginning of each forward; these broadcasts are no buckets.
* `--find-unused`: besides the buckets there is an all-reduce of which parameters were used; buckets are never rebuilt.
* `--static-graph`, `--compile`: the same buckets; compiled graphs may finish gradients in another order.
* `--sleep-compute`: layers sleep inside an autograd function, so more ranks than cores behave like devices.
"""

from __future__ import annotations

import argparse
import contextlib

import torch
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel

import tracekit
from job import Job, job, train, training_options
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
    def __init__(self, width: int, delay_s: float, sleep_compute: bool, batch_norm: bool) -> None:
        super().__init__()
        blocks = (SleepyLinear(width, SLEEP_S) if sleep_compute else Block(width) for _ in range(LAYERS * 2))
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.BatchNorm1d(width) if batch_norm else nn.Identity()
        self.head = nn.Linear(width, 10)
        self.delay_s = delay_s

    def forward(self, x: Tensor) -> Tensor:
        for number, block in enumerate(self.blocks):
            if number == LAYERS and self.delay_s:
                x = sleep(x, backward_s=self.delay_s)
            x = block(x)
        return self.head(self.norm(x))


def main() -> None:
    options = parse_options()
    with job(options) as process:
        training(process, options)  # its model is gone before the process group is, which DDP holds


def training(process: Job, options: argparse.Namespace) -> None:
    torch.manual_seed(0)
    delay_s = options.delay_ms / 1000 if process.rank == options.slow_rank else 0.0
    network = Network(options.width, delay_s, options.sleep_compute, options.batch_norm).to(process.device)

    # The probe is made before the communication hook is registered: only then does the hook get a span.
    @tracekit.probe(path=options.out, steps=options.recorded)
    def train_step() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = torch.zeros((), device=process.device)
        for micro_batch in range(options.accumulate):
            x = torch.randn(BATCH, options.width, generator=batches).to(process.device)
            target = torch.randint(10, (BATCH,), generator=batches).to(process.device)
            last = micro_batch == options.accumulate - 1
            with contextlib.nullcontext() if last else model.no_sync():
                micro_loss = nn.functional.cross_entropy(forward(x), target) / options.accumulate
                micro_loss.backward()
            loss += micro_loss.detach()
        optimizer.step()
        return loss

    model = DistributedDataParallel(
        network,
        bucket_cap_mb=options.bucket_cap_mb,
        static_graph=options.static_graph,
        find_unused_parameters=options.find_unused,
    )
    if options.comm_hook == "fp16":
        model.register_comm_hook(None, fp16_compress_hook)
    forward = torch.compile(model) if options.compile else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    batches = torch.Generator().manual_seed(1 + process.rank)

    train(train_step, options.steps, prints=process.rank == 0)


def parse_options() -> argparse.Namespace:
    parser = training_options("Data-parallel training with a planted straggler.", out="runs/ddp", steps=11)
    parser.add_argument("--recorded", type=int, default=6, help="steps that are recorded, from the fifth on")
    parser.add_argument("--slow-rank", type=int, default=-1, help="rank whose backward pass is delayed")
    parser.add_argument("--delay-ms", type=float, default=20.0, help="by how much, a micro-batch")
    parser.add_argument("--bucket-cap-mb", type=float, default=4.0, help="DDP's bucket size limit, MiB")
    parser.add_argument(
        "--width", type=int, default=512, help="of the layers; twice as many have four times the gradients"
    )
    parser.add_argument("--accumulate", type=int, default=1, help="micro-batches a step; all but the last in no_sync")
    parser.add_argument("--comm-hook", choices=["fp16"], help="compress gradients before they are reduced")
    parser.add_argument("--batch-norm", action="store_true", help="a layer with buffers, which DDP broadcasts")
    parser.add_argument("--static-graph", action="store_true", help="DDP's static_graph")
    parser.add_argument("--find-unused", action="store_true", help="DDP's find_unused_parameters")
    parser.add_argument("--compile", action="store_true", help="torch.compile; needs a C++ compiler on a CPU")
    parser.add_argument("--sleep-compute", action="store_true", help="sleep instead of computing")
    return parser.parse_args()


if __name__ == "__main__":
    main()
