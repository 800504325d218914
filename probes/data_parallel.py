"""`nn.DataParallel`: one process copies the model to every device in each step, and gathers the outputs.

    python probes/data_parallel.py

It uses all GPUs of the host. Without a GPU, or with `--device cpu`, it only calls the wrapped module; a note in the
report says so. Expected: strategy `dp`, one rank, no process group. On several GPUs the copies between them take a
large part of the step; `DistributedDataParallel` (probes/ddp.py) has a process for each device and communicates only
gradients.
"""

from __future__ import annotations

import argparse
import shlex

import torch
from torch import Tensor, nn

import tracekit
from job import choose_device, train, training_options

WIDTH, LAYERS, BATCH = 512, 6, 64


def main() -> None:
    options = parse_options()
    device = choose_device(options)
    torch.manual_seed(0)
    layers = [layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    model = nn.DataParallel(nn.Sequential(*layers, nn.Linear(WIDTH, 10))).to(device)
    if device.type == "cpu":
        model.device_ids = []  # it takes all GPUs of the host; without one this is what it has
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    @tracekit.probe(path=options.out, steps=4)
    def train_step() -> Tensor:
        x, target = torch.randn(BATCH, WIDTH, device=device), torch.randint(10, (BATCH,), device=device)
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(model(x), target)
        loss.backward()
        optimizer.step()
        return loss.detach()

    train(train_step, options.steps, prints=True)
    print(f"\nNext: tracekit analyze {shlex.quote(str(options.out))}")


def parse_options() -> argparse.Namespace:
    return training_options("Data-parallel training in one process.", out="runs/data_parallel").parse_args()


if __name__ == "__main__":
    main()
