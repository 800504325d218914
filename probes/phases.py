"""The phases of a step under DDP: data loading, gradient accumulation, activation checkpointing, mixed precision.

    torchrun --standalone --nproc-per-node 2 probes/phases.py --slow-loader-ms 30 --sleep-compute

It uses NCCL if every process of the host has a GPU, else Gloo. The script marks none of the phases. Expected findings,
with strategy ddp:

* `--slow-loader-ms 30`: "steps wait for their data: loading takes ... of the step", a little more than 30 ms of it. The
  loader is torch's, without workers; `--workers 1` loads ahead, so the finding disappears.
* `--slow-rank 1 --delay-ms 30`: "rank 1 computes ... longer than its peer", a part of it in each micro-batch.
* `--accumulate 3`: "3 backward passes a step"; gradients are reduced in the last of them only.
* "6 checkpointed forwards run again a step": the second and the fourth of the four blocks, once in each backward pass.
  `--reentrant`: torch's older implementation of checkpointing; the result is the same.
* `--amp bfloat16`: "autocast to bfloat16". `--amp float16` adds a gradient scaler: "scaled gradients". In step
  `--overflow-step` a gradient is infinite, so the optimizer's step counts as skipped.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader

import tracekit
from blocks import Block
from job import Job, add_slow_rank, job, planted_delay_s, training_options
from sleeping import SleepySamples, sleep

WIDTH, BLOCKS, BATCH = 64, 4, 48
SLEEP_S = 0.002


class Network(nn.Module):
    """Every second block keeps none of its activations."""

    def __init__(self, reentrant: bool, forward_s: float) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(WIDTH, forward_s) for _ in range(BLOCKS))
        self.reentrant = reentrant

    def forward(self, x: Tensor) -> Tensor:
        for number, block in enumerate(self.blocks):
            x = checkpoint(block, x, use_reentrant=self.reentrant) if number % 2 else block(x)
        return x


def main() -> None:
    options = parse_options()
    with job(options) as process:
        training(process, options)  # its model is gone before the process group is, which DDP holds


def training(process: Job, options: argparse.Namespace) -> None:
    torch.manual_seed(0)
    network = Network(options.reentrant, SLEEP_S if options.sleep_compute else 0.0).to(process.device)
    model = DistributedDataParallel(network)
    optimizer = torch.optim.AdamW(model.parameters())
    scaler = torch.amp.GradScaler(process.device.type, enabled=options.amp == "float16")

    delay_s = planted_delay_s(options, process) / options.accumulate

    @tracekit.probe(path=options.out, steps=options.recorded)
    def train_step(batch: Tensor, factor: float) -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        total = torch.zeros((), device=process.device)
        parts = batch.to(process.device).chunk(options.accumulate)
        for number, part in enumerate(parts):
            x = sleep(part, forward_s=delay_s)
            with contextlib.nullcontext() if number == len(parts) - 1 else model.no_sync():
                with autocast(process, options.amp):
                    loss = nn.functional.mse_loss(model(x), torch.roll(x, 1, dims=-1)) / len(parts)
                scaler.scale(loss * factor).backward()
            total += loss.detach()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return total

    for step, batch in enumerate(loader(options, process)):
        loss = train_step(batch, float("inf") if step == options.overflow_step else 1.0)
        if process.rank == 0:
            print(f"step {step}: loss {loss.item():.4f}")


def autocast(process: Job, amp: str) -> torch.autocast:
    return torch.autocast(process.device.type, dtype=getattr(torch, amp, None), enabled=amp != "none")


def loader(options: argparse.Namespace, process: Job) -> itertools.islice[Tensor]:
    """`options.steps` batches of this rank."""
    torch.manual_seed(1 + process.rank)
    samples = SleepySamples(options.steps * BATCH, WIDTH, options.slow_loader_ms / 1000 / BATCH)
    return itertools.islice(DataLoader(samples, batch_size=BATCH, num_workers=options.workers), options.steps)


def parse_options() -> argparse.Namespace:
    parser = training_options(
        "The phases of a training step, with a planted slow data loader.", out="runs/phases", recorded=4
    )
    parser.add_argument("--slow-loader-ms", type=float, default=0.0, help="how much longer a batch takes to load")
    add_slow_rank(parser, "whose forward pass is delayed")
    parser.add_argument("--workers", type=int, default=0, help="processes that load ahead")
    parser.add_argument("--accumulate", type=int, default=3, help="micro-batches a step; all but the last in no_sync")
    parser.add_argument("--reentrant", action="store_true", help="the older way of activation checkpointing")
    parser.add_argument("--amp", choices=("none", "bfloat16", "float16"), default="bfloat16", help="autocast's type")
    parser.add_argument("--overflow-step", type=int, default=-1, help="step whose gradients are infinite")
    parser.add_argument("--sleep-compute", action="store_true", help="blocks sleep as well")
    return parser.parse_args()


if __name__ == "__main__":
    main()
