"""A compiled model under DDP or FSDP2: what was compiled, with which backend, and how often a graph was broken up.

    torchrun --standalone --nproc-per-node 2 probes/compiled.py --slow-rank 1 --delay-ms 20

It uses NCCL if every process of the host has a GPU, else Gloo. Expected findings:

* `tracekit info` names the compiled modules and the backend: `aot_eager`, or what `--backend` says. Inductor, the
  default of torch.compile, needs a C++ compiler on a CPU and takes longer to start.
* `--slow-rank 1 --delay-ms 20`: "Straggler: rank 1 computes ... longer than its peer", about 20 ms a step. The
  delay sleeps in the backward pass, in a function of autograd that is not compiled: between the blocks the graph is
  broken up, so there are several graphs, and `graph_breaks` is 1 or more.
* `--whole-step`: the function of the step is compiled, with backward pass and optimizer. The same is found: what C++
  code awaits of reductions within `Torch-Compiled Region` is waiting.
* `--fsdp`: the blocks are compiled one by one, then sharded by FSDP2: blocks.0 to blocks.3 are named.
* `--without-rank 1`: rank 1 compiles nothing, so the report says that it is configured differently.
* `--sleep-compute`: the same with a small network that sleeps, so that ranks on few cores do not time each other.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import tracekit
from job import Job, add_slow_rank, job, planted_delay_s, train, training_options
from sleeping import sleep

WIDTH, LAYERS, BATCH = 256, 4, 64
SLEEPY_WIDTH, SLEEP_S = 32, 0.02


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.relu(self.up(x)))


class Network(nn.Module):
    def __init__(self, width: int, *, sleep_s: float, delay_s: float) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(LAYERS))
        self.head = nn.Linear(width, 10)
        self.sleep_s, self.delay_s = sleep_s, delay_s

    def forward(self, x: Tensor) -> Tensor:
        for number, block in enumerate(self.blocks):
            if number == LAYERS // 2:
                x = delayed(x, self.sleep_s, self.sleep_s + self.delay_s)
            x = block(x)
        return self.head(x)


@torch.compiler.disable
def delayed(x: Tensor, forward_s: float, backward_s: float) -> Tensor:
    return sleep(x, forward_s=forward_s, backward_s=backward_s) if backward_s else x


def width(options: argparse.Namespace) -> int:
    return SLEEPY_WIDTH if options.sleep_compute else WIDTH


def build(process: Job, options: argparse.Namespace) -> nn.Module:
    delay_s = planted_delay_s(options, process)
    sleep_s = SLEEP_S if options.sleep_compute else 0.0
    network = Network(width(options), sleep_s=sleep_s, delay_s=delay_s).to(process.device)
    compiles = process.rank != options.without_rank
    if not options.fsdp:
        model = DistributedDataParallel(network, bucket_cap_mb=1)
        if compiles and not options.whole_step:
            model.compile(backend=options.backend)
        return model
    blocks: Any = network.blocks
    for block in blocks:
        if compiles:
            block.compile(backend=options.backend)
        fully_shard(block)
    return fully_shard(network)


def main() -> None:
    options = parse_options()
    with job(options) as process:
        training(process, options)  # its model is gone before the process group is, which DDP holds


def training(process: Job, options: argparse.Namespace) -> None:
    torch.manual_seed(0)
    model = build(process, options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    batches = torch.Generator().manual_seed(1 + process.rank)

    def train_step() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        x = torch.randn(BATCH, width(options), generator=batches).to(process.device)
        target = torch.randint(10, (BATCH,), generator=batches).to(process.device)
        loss = nn.functional.cross_entropy(model(x), target)
        loss.backward()
        optimizer.step()
        return loss.detach()

    if options.whole_step:
        train_step = torch.compile(train_step, backend=options.backend)
    train_step = tracekit.probe(path=options.out, steps=options.recorded)(train_step)
    train(train_step, options.steps, prints=process.rank == 0)


def parse_options() -> argparse.Namespace:
    parser = training_options("Training of a compiled model.", out="runs/compiled", steps=11, recorded=6)
    parser.add_argument("--backend", default="aot_eager", help="of torch.compile: inductor, aot_eager, eager")
    parser.add_argument("--fsdp", action="store_true", help="blocks compiled one by one under FSDP2, in place of DDP")
    parser.add_argument("--whole-step", action="store_true", help="the step is compiled, in place of the model")
    add_slow_rank(parser, "whose backward pass is delayed")
    parser.add_argument("--sleep-compute", action="store_true", help="sleep instead of computing")
    parser.add_argument("--without-rank", type=int, default=-1, help="rank that compiles nothing")
    return parser.parse_args()


if __name__ == "__main__":
    main()
