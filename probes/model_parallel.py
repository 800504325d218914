"""Layer-wise model parallelism: each rank has some of the layers, and the whole batch passes them in order.

    torchrun --standalone --nproc-per-node 3 probes/model_parallel.py --sleep-compute

Activations are sent to the next rank and gradients back. It uses NCCL if every process of the host has a GPU, else
Gloo. The defect is inherent in this way of training: while one rank computes, the others wait. Expected findings:

* The strategy is pp; the schedule is manual, with one microbatch: each rank has one F and one B in a step. Bubbles take
  (ranks - 1) / ranks of the time, two thirds with three ranks.
* Nearly all communication is exposed; it is time spent waiting in recv.
* `--slow-rank 1 --delay-ms 20`: the same. Each rank computes alone, so no layer that moves to another one saves time.
* `--forward-only`: the same without B.
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from torch import Tensor, nn

import tracekit
from job import add_slow_rank, job, planted_delay_s, training_options
from sleeping import SleepyLinear, sleep

WIDTH, LAYERS_A_RANK, BATCH = 256, 4, 64
SLEEP_S = 0.004


def main() -> None:
    options = parse_options()
    with job(options) as process:
        torch.manual_seed(process.rank)
        layer = (lambda: SleepyLinear(WIDTH, SLEEP_S)) if options.sleep_compute else (lambda: nn.Linear(WIDTH, WIDTH))
        layers = nn.Sequential(*(layer() for _ in range(LAYERS_A_RANK))).to(process.device)
        optimizer = torch.optim.SGD(layers.parameters(), lr=0.001)
        first, last = process.rank == 0, process.rank == process.world_size - 1
        delay_s = planted_delay_s(options, process)
        batches = torch.Generator().manual_seed(1)

        @tracekit.probe(path=options.out, steps=4)
        def train_step(x: Tensor) -> Tensor | None:
            if not first:
                dist.recv(x, src=process.rank - 1)
                x.requires_grad_(not options.forward_only)
            with torch.set_grad_enabled(not options.forward_only):
                output = layers(sleep(x, forward_s=delay_s))
            if not last:
                dist.send(output.detach(), dst=process.rank + 1)
            loss = output.square().mean() if last else None
            if options.forward_only:
                return loss
            if loss is not None:
                loss.backward()
            else:
                dist.recv(gradient := torch.empty_like(output), src=process.rank + 1)
                output.backward(gradient)
            if not first:
                assert x.grad is not None
                dist.send(x.grad, dst=process.rank - 1)
            optimizer.step()
            optimizer.zero_grad()
            return None if loss is None else loss.detach()

        for step in range(options.steps):
            loss = train_step(torch.randn(BATCH, WIDTH, generator=batches).to(process.device))
            if loss is not None:
                print(f"step {step}: loss {loss.item():.4f}")


def parse_options() -> argparse.Namespace:
    parser = training_options("Layers split over ranks: one computes while the others wait.", out="runs/model_parallel")
    add_slow_rank(parser, "whose forward pass is delayed")
    parser.add_argument("--forward-only", action="store_true", help="no backward")
    parser.add_argument("--sleep-compute", action="store_true", help="sleep instead of computing")
    return parser.parse_args()


if __name__ == "__main__":
    main()
