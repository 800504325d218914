"""Fully sharded data parallel: residual MLP blocks, each a unit of FSDP, every rank with its own batches.

    torchrun --standalone --nproc-per-node 2 probes/fsdp.py --fsdp 2 --slow-rank 1 --delay-ms 20 --sleep-compute
    torchrun --standalone --nproc-per-node 4 probes/fsdp.py --hsdp --sleep-compute

It uses NCCL if every process of the host has a GPU, else Gloo. Expected findings:

* `--fsdp 2` (fully_shard) or `--fsdp 1` (FullyShardedDataParallel): strategy fsdp2 or fsdp1. Each of the modules
  blocks.0 to blocks.5 has an all-gather forward, one backward and a reduce-scatter. The outermost module has no
  all-gather backward, as it stays gathered. On Gloo all of them block: the overlap is 0 %, and the report does not
  promise that prefetching hides anything.
* `--slow-rank 1 --delay-ms 20`: "rank 1 computes ... longer than its peer, which waits for it", about 20 ms a
  step. The delay is in the backward pass between blocks.3 and blocks.2. The others wait in the next
  collective, the all-gather of blocks.1, which FSDP2 issues as blocks.2 begins.
* `--hsdp` (an even number of ranks, 4 or more): two replicas; strategy hsdp as well, and an all-reduce of each
  module's gradients across the replicas.
* `--prefetch 2`: each block prefetches the two after it (FSDP1 supports one), so the time from issue to use grows.
* `--sleep-compute`: layers sleep inside an autograd function, so more ranks than cores behave like devices.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy, fully_shard

import tracekit
from job import Job, job, train, training_options
from sleeping import SleepyLinear, sleep

WIDTH, LAYERS, BATCH = 256, 6, 32
SLEEP_S = 0.004


class Block(nn.Module):
    def __init__(self, sleep_compute: bool) -> None:
        super().__init__()
        self.first = SleepyLinear(WIDTH, SLEEP_S) if sleep_compute else nn.Linear(WIDTH, WIDTH)
        self.second = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(torch.relu(self.first(x)))


class Network(nn.Module):
    def __init__(self, delay_s: float, sleep_compute: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(sleep_compute) for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, 10)
        self.delay_s = delay_s

    def forward(self, x: Tensor) -> Tensor:
        for number, block in enumerate(self.blocks):
            if number == LAYERS // 2 and self.delay_s:
                x = sleep(x, backward_s=self.delay_s)
            x = block(x)
        return self.head(x)


def shard(network: Network, process: Job, options: argparse.Namespace) -> nn.Module:
    sharding: dict[str, Any] = {}
    if options.hsdp:
        shape = (2, process.world_size // 2)
        mesh = init_device_mesh(process.device.type, shape, mesh_dim_names=("replicate", "shard"))
        sharding = {"mesh": mesh} if options.fsdp == 2 else {"device_mesh": mesh}
    blocks: Any = network.blocks
    if options.fsdp == 2:
        for block in blocks:
            fully_shard(block, **sharding)
        for number, block in enumerate(blocks if options.prefetch else []):
            block.set_modules_to_forward_prefetch(list(blocks[number + 1 : number + 1 + options.prefetch]))
            before = list(blocks[max(number - options.prefetch, 0) : number])
            block.set_modules_to_backward_prefetch(before[::-1])
        return fully_shard(network, **sharding)
    strategy = ShardingStrategy.HYBRID_SHARD if options.hsdp else ShardingStrategy.FULL_SHARD
    sharding |= {
        "sharding_strategy": strategy,
        "device_id": process.device,
        "forward_prefetch": bool(options.prefetch),
    }
    for number, block in enumerate(blocks):
        blocks[number] = FullyShardedDataParallel(block, **sharding)
    return FullyShardedDataParallel(network, **sharding)


def main() -> None:
    options = parse_options()
    with job(options) as process:
        torch.manual_seed(0)
        delay_s = options.delay_ms / 1000 if process.rank == options.slow_rank else 0.0
        model = shard(Network(delay_s, options.sleep_compute).to(process.device), process, options)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
        batches = torch.Generator().manual_seed(1 + process.rank)

        @tracekit.probe(path=options.out, steps=options.recorded)
        def train_step() -> Tensor:
            optimizer.zero_grad(set_to_none=True)
            x = torch.randn(BATCH, WIDTH, generator=batches).to(process.device)
            target = torch.randint(10, (BATCH,), generator=batches).to(process.device)
            loss = nn.functional.cross_entropy(model(x), target)
            loss.backward()
            optimizer.step()
            return loss.detach()

        train(train_step, options.steps, prints=process.rank == 0)


def parse_options() -> argparse.Namespace:
    parser = training_options("Fully sharded training with a planted straggler.", out="runs/fsdp", steps=11)
    parser.add_argument("--fsdp", type=int, choices=(1, 2), default=2, help="which of torch's two implementations")
    parser.add_argument("--hsdp", action="store_true", help="two replicas, each sharded over half of the ranks")
    parser.add_argument("--prefetch", type=int, default=0, help="modules to gather ahead")
    parser.add_argument("--recorded", type=int, default=6, help="steps that are recorded, from the fifth on")
    parser.add_argument("--slow-rank", type=int, default=-1, help="rank whose backward pass is delayed")
    parser.add_argument("--delay-ms", type=float, default=20.0, help="by how much, a step")
    parser.add_argument("--sleep-compute", action="store_true", help="sleep instead of computing")
    return parser.parse_args()


if __name__ == "__main__":
    main()
