"""Data parallelism by hand, as in tutorials: the backward pass first, then an all-reduce for every parameter.

    torchrun --standalone --nproc-per-node 2 probes/manual_data_parallel.py --sleep-compute

It uses NCCL if every process of the host has a GPU, else Gloo. Expected, with strategy `manual_dp`:

* by default: "Manual all-reduce: ... 26 all-reduces a step, one a parameter, after the backward pass", with
  their share of the step and the advice to use `DistributedDataParallel`.
* `--flat`: one all-reduce in each step, of all gradients in one buffer; nothing can overlap it, either.
* `--hooks`: each gradient is averaged in a hook during the backward pass, which waits for each all-reduce.
* `--every 2`: strategy `local_sgd`. Ranks update by their own gradients; in every second step parameters are averaged.
* `--slow-rank 1 --delay-ms 20`: "rank 1 computes ... longer than its peer", about 20 ms a step.
"""

from __future__ import annotations

import argparse
import itertools

import torch
import torch.distributed as dist
from torch import Tensor, nn

import tracekit
from job import add_slow_rank, job, planted_delay_s, train, training_options
from sleeping import SleepyLinear, sleep

WIDTH, LAYERS, BATCH = 512, 12, 64
SLEEP_S = 0.002


def network(sleep_compute: bool) -> nn.Module:
    layers = (SleepyLinear(WIDTH, SLEEP_S) if sleep_compute else nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))
    return nn.Sequential(*layers, nn.Linear(WIDTH, 10))


def average_one_by_one(model: nn.Module) -> None:
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()


def average_flat(model: nn.Module) -> None:
    gradients = [parameter.grad for parameter in model.parameters()]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat)
    parts = (flat / dist.get_world_size()).split([gradient.numel() for gradient in gradients])
    for gradient, part in zip(gradients, parts, strict=True):
        gradient.copy_(part.view_as(gradient))


def average_parameters(model: nn.Module) -> None:
    for parameter in model.parameters():
        dist.all_reduce(parameter.data)
        parameter.data /= dist.get_world_size()


def average_in_hooks(model: nn.Module) -> None:
    def average(parameter: Tensor) -> None:
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(average)


def main() -> None:
    options = parse_options()
    with job(options) as process:
        torch.manual_seed(0)
        model = network(options.sleep_compute).to(process.device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        batches = torch.Generator().manual_seed(1 + process.rank)
        delay_s, step = planted_delay_s(options, process), itertools.count(1)
        if options.hooks:
            average_in_hooks(model)

        @tracekit.probe(path=options.out, steps=4)
        def train_step() -> Tensor:
            x = torch.randn(BATCH, WIDTH, generator=batches).to(process.device)
            target = torch.randint(10, (BATCH,), generator=batches).to(process.device)
            optimizer.zero_grad(set_to_none=True)
            loss = nn.functional.cross_entropy(model(sleep(x, forward_s=delay_s)), target)
            loss.backward()
            if options.flat:
                average_flat(model)
            elif not options.hooks and not options.every:
                average_one_by_one(model)
            optimizer.step()
            if options.every and next(step) % options.every == 0:
                average_parameters(model)
            return loss.detach()

        train(train_step, options.steps, prints=process.rank == 0)


def parse_options() -> argparse.Namespace:
    parser = training_options(
        "Data-parallel training with gradients averaged by hand.", out="runs/manual_data_parallel"
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--flat", action="store_true", help="one all-reduce of all gradients in one buffer")
    how.add_argument("--hooks", action="store_true", help="all-reduces in hooks of the parameters")
    how.add_argument("--every", type=int, default=0, help="average parameters in each so many-th step, not gradients")
    add_slow_rank(parser, "that computes longer")
    parser.add_argument("--sleep-compute", action="store_true", help="sleep instead of computing")
    return parser.parse_args()


if __name__ == "__main__":
    main()
