"""A training loop with Hugging Face's accelerate: data parallel (DDP), with gradients of several batches in a step.

    torchrun --standalone --nproc-per-node 2 probes/accelerate_loop.py --slow-rank 1 --delay-ms 20 --sleep-compute

`tracekit.integrations.AccelerateProbe` records it: a step is a step of the optimizer, with all its micro-batches. The
file is not called accelerate.py: Python would import it instead of the package. Expected findings, with strategy ddp:

* "2 backward passes a step", or as many as `--accumulate` says; gradients are reduced in the last of them only.
* `--slow-rank 1 --delay-ms 20`: "Straggler: rank 1 computes ... longer than its peer", about 20 ms a step, in
  equal parts in the backward pass of each micro-batch.
* `--sleep-compute`: layers sleep inside an autograd function, so more ranks than cores behave like devices.
"""

from __future__ import annotations

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import tracekit
from blocks import Network
from job import Job, add_slow_rank, job, planted_delay_s, require_package, training_options

require_package("accelerate")

from accelerate import Accelerator  # noqa: E402 (it may be missing)

WIDTH, LAYERS, CLASSES, BATCH = 64, 2, 10, 16
SLEEP_S = 0.002


def main() -> None:
    options = parse_options()
    with job(options) as process:
        training(process, options)  # its model is gone before the process group is, which DDP holds


def training(process: Job, options: argparse.Namespace) -> None:
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=process.device.type == "cpu", gradient_accumulation_steps=options.accumulate)
    delay_s = planted_delay_s(options, process) / options.accumulate
    network = Network(WIDTH, LAYERS, CLASSES, SLEEP_S if options.sleep_compute else 0.0, delay_s)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    samples = options.steps * options.accumulate * BATCH * process.world_size
    data = TensorDataset(torch.randn(samples, WIDTH), torch.randint(CLASSES, (samples,)))
    model, optimizer, loader = accelerator.prepare(network, optimizer, DataLoader(data, BATCH))

    with tracekit.integrations.AccelerateProbe(accelerator, options.out, steps=options.recorded) as probe:
        for x, target in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(x), target)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                accelerator.print(f"loss {loss.item():.4f}")
            probe.step()


def parse_options() -> argparse.Namespace:
    parser = training_options(
        "A loop with accelerate, and a planted straggler.", out="runs/accelerate_loop", recorded=4
    )
    parser.add_argument("--accumulate", type=int, default=2, help="micro-batches a step")
    add_slow_rank(parser, "whose backward passes are delayed")
    parser.add_argument("--sleep-compute", action="store_true", help="layers sleep as well")
    return parser.parse_args()


if __name__ == "__main__":
    main()
