"""ZeRO: optimizer states, from stage 2 gradients, and from stage 3 parameters are sharded over the ranks.

    pip install deepspeed
    torchrun --standalone --nproc-per-node 2 probes/zero.py --stage 3 --slow-rank 1 --delay-ms 20 --sleep-compute

It is DeepSpeed's, or with `--torch` the `ZeroRedundancyOptimizer` of torch below DistributedDataParallel.
It uses NCCL if every process of the host has a GPU, else Gloo. Expected findings, with strategy zero1, zero2 or zero3:

* `--stage 1` and `2`: gradients of a few modules at once are reduced in the backward pass; the optimizer's step ends
  with an all-gather of the parameters.
* `--stage 3`: the parameters of the modules blocks.0.norm to blocks.3.down and head are gathered in the forward and in
  the backward pass, several modules at once if `--prefetch` allows. Gradients are reduced and scattered.
* `--slow-rank 1 --delay-ms 20`: "Straggler: rank 1 computes ... longer than its peer", about 20 ms a
  step. The delay is in the backward pass, between blocks.2 and blocks.1.
* `--torch`: strategies ddp and zero1; after the optimizer's step each rank broadcasts the parameters that it updated.
* `--sleep-compute`: layers sleep inside an autograd function, so more ranks than cores behave like devices.
"""

from __future__ import annotations

import argparse
import os
import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

import tracekit
from blocks import Block
from job import Job, add_slow_rank, job, planted_delay_s, require_package, train, training_options
from sleeping import sleep

WIDTH, LAYERS, BATCH = 32, 4, 16
SLEEP_S = 0.004
BLOCK_ELEMENTS = sum(parameter.numel() for parameter in Block(WIDTH).parameters())


class Network(nn.Module):
    def __init__(self, delay_s: float, sleep_compute: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(WIDTH, SLEEP_S if sleep_compute else 0.0) for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, 10)
        self.delay_s = delay_s

    def forward(self, x: Tensor) -> Tensor:
        for number, block in enumerate(self.blocks):
            if number == LAYERS // 2:  # on all ranks: else one has more operators
                x = sleep(x, backward_s=self.delay_s)
            x = block(x)
        return self.head(x)


def configuration(options: argparse.Namespace) -> dict[str, Any]:
    """Return limits for a small model: buckets of one block, and parameters that are released after each use."""
    sharding: dict[str, Any] = {"stage": options.stage, "reduce_bucket_size": BLOCK_ELEMENTS}
    if options.stage == 3:
        sharding |= {
            "stage3_param_persistence_threshold": 0,
            "stage3_prefetch_bucket_size": options.prefetch * BLOCK_ELEMENTS,
            "stage3_max_reuse_distance": 0,
            "stage3_max_live_parameters": (1 + options.prefetch) * BLOCK_ELEMENTS,
        }
    return {
        "train_micro_batch_size_per_gpu": BATCH,
        "optimizer": {"type": "SGD", "params": {"lr": 0.01}},
        "zero_optimization": sharding,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }


def start_engine(options: argparse.Namespace, process: Job) -> Any:
    # As it is imported, DeepSpeed looks for devices, also for kinds that the probe does not use.
    os.environ.setdefault("DS_ACCELERATOR", process.device.type)
    import deepspeed
    from deepspeed.ops import __compatible_ops__

    # DeepSpeed uses deprecated functions in every step.
    warnings.filterwarnings("ignore", category=FutureWarning, module="torch.distributed")
    # On a CPU it would first compile an operator for reductions in shared memory, which takes a minute.
    __compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed("nccl" if process.device.type == "cuda" else "gloo")
    torch.manual_seed(0)
    delay_s = planted_delay_s(options, process)
    network = Network(delay_s, options.sleep_compute)
    engine, _, _, _ = deepspeed.initialize(
        model=network, model_parameters=network.parameters(), config=configuration(options)
    )
    return engine


class TorchEngine:
    """What DeepSpeed's engine does here, by DistributedDataParallel and ZeroRedundancyOptimizer."""

    def __init__(self, options: argparse.Namespace, process: Job) -> None:
        torch.manual_seed(0)
        network = Network(planted_delay_s(options, process), options.sleep_compute).to(process.device)
        self.module = DistributedDataParallel(network)
        self.optimizer = ZeroRedundancyOptimizer(self.module.parameters(), torch.optim.SGD, lr=0.01)

    def __call__(self, x: Tensor) -> Tensor:
        return self.module(x)

    def backward(self, loss: Tensor) -> None:
        loss.backward()

    def step(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()

    def destroy(self) -> None:
        del self.module, self.optimizer


def main() -> None:
    options = parse_options()
    if not options.torch:
        require_package("deepspeed")
    with job(options) as process:
        engine = TorchEngine(options, process) if options.torch else start_engine(options, process)
        batches = torch.Generator().manual_seed(1 + process.rank)

        @tracekit.probe(path=options.out, steps=options.recorded)
        def train_step() -> Tensor:
            x = torch.randn(BATCH, WIDTH, generator=batches).to(process.device)
            target = torch.randint(10, (BATCH,), generator=batches).to(process.device)
            loss = nn.functional.cross_entropy(engine(x), target)
            engine.backward(loss)
            engine.step()
            return loss.detach()

        train(train_step, options.steps, prints=process.rank == 0)
        engine.destroy()


def parse_options() -> argparse.Namespace:
    parser = training_options("Training under ZeRO with a planted straggler.", out="runs/zero", recorded=4)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--stage", type=int, choices=(1, 2, 3), default=3, help="what is sharded")
    how.add_argument("--torch", action="store_true", help="torch's ZeroRedundancyOptimizer, without DeepSpeed")
    parser.add_argument("--prefetch", type=int, default=1, help="blocks to gather ahead of need (stage 3)")
    add_slow_rank(parser, "whose backward pass is delayed")
    parser.add_argument("--sleep-compute", action="store_true", help="sleep instead of computing")
    return parser.parse_args()


if __name__ == "__main__":
    main()
