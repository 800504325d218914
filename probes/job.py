"""The job around a probe: options, process group, device, training loop, and the words at the end."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # or torch prints two lines a rank and window

import torch
import torch.distributed as dist

_kept: list[torch.Tensor] = []  # whoever lets go of a tensor last needs the interpreter, which at exit is gone


@dataclass(frozen=True)
class Job:
    """This process of the job: `device` is a GPU of its own where every process of the host has one, else the CPU."""

    rank: int
    world_size: int
    device: torch.device


@contextmanager
def job(out: str) -> Iterator[Job]:
    """Join the process group that torchrun describes (NCCL on GPUs, Gloo on CPUs); at the end leave it, and rank 0 says
    how to read the recording below `out`.
    """
    on_gpu = torch.cuda.is_available() and torch.cuda.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpu else "gloo")
    this = Job(rank=dist.get_rank(), world_size=dist.get_world_size(), device=device)
    yield this
    # A rank that leaves while its last collective still ends elsewhere can abort as it exits. So can one that leaves
    # after a barrier of Gloo, which holds on to earlier collectives and lets go of them on a thread of its own.
    _kept.append(torch.zeros(1, device=device))
    dist.all_reduce(_kept[-1])
    dist.destroy_process_group()
    if this.rank == 0:
        print(f"\nNext: tracekit analyze {shlex.quote(str(out))}")


def training_options(description: str, out: str, steps: int = 9) -> argparse.ArgumentParser:
    """The options that all probes have. The first four steps are not recorded."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--out", default=out, help="folder of the run")
    parser.add_argument("--steps", type=int, default=steps, help="training steps; recorded are some from the fifth on")
    return parser


def train(train_step: Callable[[], torch.Tensor | None], steps: int, *, prints: bool) -> None:
    """`prints`: whether this rank tells the loss of each step that has one."""
    for step in range(steps):
        loss = train_step()
        if prints and loss is not None:
            print(f"step {step}: loss {loss.item():.4f}")
