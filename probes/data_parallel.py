"""`nn.DataParallel`: one process, which copies the model to every device in each step and gathers the outputs.

    python probes/data_parallel.py

Takes all GPUs of the host; without any it only calls the module that it wraps, and a note in the report says so.
Expected: strategy `dp`, one rank, no process group. On several GPUs the copies between them take a notable part of the
step; `DistributedDataParallel` (probes/ddp.py) has a process a device and copies nothing but gradients.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # or torch prints two lines a window

import torch
from torch import Tensor, nn

import tracekit

WIDTH, LAYERS, BATCH = 512, 6, 64


def main() -> None:
    options = parse_options()
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    torch.manual_seed(0)
    layers = [layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    model = nn.DataParallel(nn.Sequential(*layers, nn.Linear(WIDTH, 10))).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    @tracekit.probe(path=options.out, steps=4)
    def train_step() -> Tensor:
        x, target = torch.randn(BATCH, WIDTH, device=device), torch.randint(10, (BATCH,), device=device)
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(model(x), target)
        loss.backward()
        optimizer.step()
        return loss.detach()

    for step in range(options.steps):
        print(f"step {step}: loss {train_step().item():.4f}")
    print(f"\nNext: tracekit analyze {options.out}")


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Data-parallel training in one process.")
    parser.add_argument("--out", default="runs/data_parallel", help="folder of the run")
    parser.add_argument("--steps", type=int, default=9, help="training steps; the fifth to the eighth are recorded")
    return parser.parse_args()


if __name__ == "__main__":
    main()
