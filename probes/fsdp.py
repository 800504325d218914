"""Fully sharded data parallel: residual MLP blocks, each a unit of FSDP, every rank with its own batches.

    torchrun --standalone --nproc-per-node 2 probes/fsdp.py --fsdp 2 --slow-rank 1 --delay-ms 20 --sleep-compute
    torchrun --standalone --nproc-per-node 4 probes/fsdp.py --hsdp --sleep-compute

It uses NCCL if every process of the host has a GPU, else Gloo. Expected findings:

* `--fsdp 2` (fully_shard) or `--fsdp 1` (FullyShardedDataParallel): strategy fsdp2 or fsdp1. Each of the modules
  blocks.0 to blocks.5 has an all-gather forward, one backward and a reduce-scatter. The outermost module has no
  all-gather backward, as it stays gathered. On Gloo all of them block: the overlap is 0 %, and the report does not
  promise that prefetching hides anything.
* `--slow-rank 1 --delay-ms 20`: "Straggler: rank 1 computes ... longer than its peer", about 20 ms a
  step. The delay is in the backward pass between blocks.3 and blocks.2. The others wait in the next
  collective, the all-gather of blocks.1, which FSDP2 issues as blocks.2 begins.
* `--hsdp` (an even number of ranks, 4 or more): two replicas; strategy hsdp as well, and an all-reduce of each
  module's gradients across the replicas.
* `--fsdp 1 --sharding grad-op`: sharding_strategy=SHARD_GRAD_OP; no all-gathers in the backward pass. `no`: NO_SHARD,
  all-reduces in place of gathers; `hybrid`: HYBRID_SHARD, as with `--hsdp`.
* `--no-reshard` (FSDP2): reshard_after_forward=False; no all-gathers in the backward pass. With wide layers
  (`--width 1024`) the report on the run without it promises what that saves.
* `--precision bf16`: param_dtype=bfloat16; all-gathers and reduce-scatters have half the bytes.
* `--offload`: FSDP2's CPUOffloadPolicy, which changes no times on a CPU; FSDP1's cpu_offload needs a GPU.
  `tracekit info` says each of these settings as it was given.
* `--prefetch 2`: each block prefetches the two after it (FSDP1 supports one), so the time from issue to use grows.
* `--sleep-compute`: layers sleep inside an autograd function, so more ranks than cores behave like devices.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import (
    CPUOffload,
    CPUOffloadPolicy,
    FullyShardedDataParallel,
    MixedPrecision,
    MixedPrecisionPolicy,
    ShardingStrategy,
    fully_shard,
)

import tracekit
from job import Job, add_slow_rank, job, planted_delay_s, train, training_options
from sleeping import SleepyLinear, sleep

LAYERS, BATCH = 6, 32
SLEEP_S = 0.004
STRATEGIES = {
    "full": ShardingStrategy.FULL_SHARD,
    "grad-op": ShardingStrategy.SHARD_GRAD_OP,
    "no": ShardingStrategy.NO_SHARD,
    "hybrid": ShardingStrategy.HYBRID_SHARD,
}


class Block(nn.Module):
    def __init__(self, width: int, sleep_compute: bool) -> None:
        super().__init__()
        self.first = SleepyLinear(width, SLEEP_S) if sleep_compute else nn.Linear(width, width)
        self.second = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(torch.relu(self.first(x)))


class Network(nn.Module):
    def __init__(self, width: int, delay_s: float, sleep_compute: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(width, sleep_compute) for _ in range(LAYERS))
        self.head = nn.Linear(width, 10)
        self.delay_s = delay_s

    def forward(self, x: Tensor) -> Tensor:
        for number, block in enumerate(self.blocks):
            if number == LAYERS // 2 and self.delay_s:
                x = sleep(x, backward_s=self.delay_s)
            x = block(x)
        return self.head(x)


def shard(network: Network, process: Job, options: argparse.Namespace) -> nn.Module:
    mesh = None
    if options.sharding == "hybrid":
        shape = (2, process.world_size // 2)
        mesh = init_device_mesh(process.device.type, shape, mesh_dim_names=("dp_replicate", "dp_shard"))
    return fsdp2(network, mesh, options) if options.fsdp == 2 else fsdp1(network, mesh, process.device, options)


def fsdp2(network: Network, mesh: DeviceMesh | None, options: argparse.Namespace) -> nn.Module:
    sharding: dict[str, Any] = {"mesh": mesh}
    if not options.reshard:
        sharding["reshard_after_forward"] = False
    if options.precision == "bf16":
        sharding["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    if options.offload:
        sharding["offload_policy"] = CPUOffloadPolicy(pin_memory=torch.cuda.is_available())
    blocks: Any = network.blocks
    for block in blocks:
        fully_shard(block, **sharding)
    for number, block in enumerate(blocks if options.prefetch else []):
        block.set_modules_to_forward_prefetch(list(blocks[number + 1 : number + 1 + options.prefetch]))
        before = list(blocks[max(number - options.prefetch, 0) : number])
        block.set_modules_to_backward_prefetch(before[::-1])
    return fully_shard(network, **sharding)


def fsdp1(network: Network, mesh: DeviceMesh | None, device: torch.device, options: argparse.Namespace) -> nn.Module:
    sharding: dict[str, Any] = {
        "device_mesh": mesh,
        "sharding_strategy": STRATEGIES[options.sharding],
        "device_id": device,
        "forward_prefetch": bool(options.prefetch),
    }
    if options.precision == "bf16":
        sharding["mixed_precision"] = MixedPrecision(param_dtype=torch.bfloat16)
    if options.offload:
        sharding["cpu_offload"] = CPUOffload(offload_params=True)
    blocks: Any = network.blocks
    for number, block in enumerate(blocks):
        blocks[number] = FullyShardedDataParallel(block, **sharding)
    return FullyShardedDataParallel(network, **sharding)


def main() -> None:
    options = parse_options()
    with job(options) as process:
        if options.fsdp == 1 and options.offload and process.device.type == "cpu":
            raise SystemExit("FSDP1 offloads parameters of an accelerator, and there is none; --fsdp 2 runs on a CPU")
        training(process, options)  # its model is gone before the process group is, which FSDP1 holds


def training(process: Job, options: argparse.Namespace) -> None:
    torch.manual_seed(0)
    delay_s = planted_delay_s(options, process)
    network = Network(options.width, delay_s, options.sleep_compute).to(process.device)
    model = shard(network, process, options)
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
    parser = training_options("Fully sharded training with a planted straggler.", out="runs/fsdp", steps=11, recorded=6)
    parser.add_argument("--fsdp", type=int, choices=(1, 2), default=2, help="which of torch's two implementations")
    parser.add_argument(
        "--sharding",
        choices=["full", "grad-op", "no", "hybrid"],
        default="full",
        help="the strategy; FSDP2: full, hybrid",
    )
    parser.add_argument(
        "--hsdp",
        dest="sharding",
        action="store_const",
        const="hybrid",
        help="two replicas, each sharded over half of the ranks",
    )
    parser.add_argument(
        "--reshard",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="FSDP2: free parameters between forward and backward, and gather them again",
    )
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32", help="of gathered parameters")
    parser.add_argument("--offload", action="store_true", help="keep parameters and gradients in host memory")
    parser.add_argument("--width", type=int, default=256, help="of the layers")
    parser.add_argument("--prefetch", type=int, default=0, help="modules to gather ahead")
    add_slow_rank(parser, "whose backward pass is delayed")
    parser.add_argument("--sleep-compute", action="store_true", help="sleep instead of computing")
    options = parser.parse_args()
    if options.fsdp == 2 and options.sharding in ("grad-op", "no"):
        parser.error(f"FSDP2 has no sharding {options.sharding}; for grad-op it has --no-reshard")
    if options.fsdp == 1 and not options.reshard:
        parser.error("FSDP1 has no --no-reshard; it has --sharding grad-op")
    return options


if __name__ == "__main__":
    main()
