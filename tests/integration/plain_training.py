"""Trains with no edit for tracekit: `plain_training.py STEPS [FOLDER | sigterm]`; with a folder it is decorated."""

from __future__ import annotations

import os
import signal
import sys

os.environ.setdefault("KINETO_LOG_LEVEL", "99")

import torch
import torch.distributed as dist
from torch import nn


class Trainer:
    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters())

    def step(self) -> None:
        for _ in range(2):  # micro-batches
            self.model(torch.ones(4, 16)).sum().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


if __name__ == "__main__":
    steps, *how = sys.argv[1:]
    model: nn.Module = nn.Linear(16, 16)
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
        model = nn.parallel.DistributedDataParallel(model)
    trainer = Trainer(model)
    step = trainer.step
    if how and how[0] != "sigterm":
        import tracekit

        step = tracekit.probe(path=how[0], steps=2)(step)
    for _ in range(int(steps)):
        step()
    if how == ["sigterm"]:
        os.kill(os.getpid(), signal.SIGTERM)
    if dist.is_initialized():
        dist.destroy_process_group()
