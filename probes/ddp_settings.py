"""DDP with one of its settings: what each changes in the gradients' reductions.

    torchrun --standalone --nproc-per-node 2 probes/ddp_settings.py --comm-hook fp16 --sleep-compute

It uses NCCL if every process of the host has a GPU, else Gloo. The strategy is ddp. Without options the 0.27 MB of
gradients are reduced in one bucket a step. Expected:

* `--comm-hook fp16`: gradients are reduced as float16, half the bytes; each bucket's hook is a span in the trace.
* `--accumulate 4`: a step has four micro-batches; only the last one has all-reduces.
* `--batch-norm`: its buffers are broadcast at the beginning of each forward; these broadcasts are no buckets.
* `--find-unused`: besides the buckets there is an all-reduce of which parameters were used; buckets are never rebuilt.
* `--static-graph`: the same buckets; DDP finds out in the first step which parameters are used.
* `--slow-rank 1 --delay-ms 20`: "Straggler: rank 1 computes ... longer than its peer".
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
from blocks import Network
from job import Job, add_slow_rank, job, planted_delay_s, train, training_options
from sleeping import sleep

WIDTH, LAYERS, CLASSES, BATCH = 64, 2, 10, 64
SLEEP_S = 0.004


def main() -> None:
    options = parse_options()
    with job(options) as process:
        training(process, options)  # its model is gone before the process group is, which DDP holds


def training(process: Job, options: argparse.Namespace) -> None:
    torch.manual_seed(0)
    network: nn.Module = Network(WIDTH, LAYERS, CLASSES, SLEEP_S if options.sleep_compute else 0.0)
    if options.batch_norm:
        network = nn.Sequential(nn.BatchNorm1d(WIDTH), network)

    delay_s = planted_delay_s(options, process) / options.accumulate

    # The probe is made before the communication hook is registered: only then does the hook get a span.
    @tracekit.probe(path=options.out, steps=options.recorded)
    def train_step() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        total = torch.zeros((), device=process.device)
        for micro_batch in range(options.accumulate):
            x = torch.randn(BATCH, WIDTH, generator=batches).to(process.device)
            target = torch.randint(CLASSES, (BATCH,), generator=batches).to(process.device)
            last = micro_batch == options.accumulate - 1
            with contextlib.nullcontext() if last else model.no_sync():
                loss = nn.functional.cross_entropy(model(sleep(x, forward_s=delay_s)), target) / options.accumulate
                loss.backward()
            total += loss.detach()
        optimizer.step()
        return total

    model = DistributedDataParallel(
        network.to(process.device), static_graph=options.static_graph, find_unused_parameters=options.find_unused
    )
    if options.comm_hook == "fp16":
        model.register_comm_hook(None, fp16_compress_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    batches = torch.Generator().manual_seed(1 + process.rank)

    train(train_step, options.steps, prints=process.rank == 0)


def parse_options() -> argparse.Namespace:
    parser = training_options("Data-parallel training with one of DDP's settings.", out="runs/ddp_settings", recorded=4)
    add_slow_rank(parser, "whose forward pass is delayed")
    parser.add_argument("--comm-hook", choices=["fp16"], help="compress gradients before they are reduced")
    parser.add_argument("--accumulate", type=int, default=1, help="micro-batches a step; all but the last in no_sync")
    parser.add_argument("--batch-norm", action="store_true", help="a layer with buffers, which DDP broadcasts")
    parser.add_argument("--find-unused", action="store_true", help="DDP's find_unused_parameters")
    parser.add_argument("--static-graph", action="store_true", help="DDP's static_graph")
    parser.add_argument("--sleep-compute", action="store_true", help="layers sleep as well")
    return parser.parse_args()


if __name__ == "__main__":
    main()
