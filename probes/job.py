"""What all probes share: options, process group, device and training loop."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # or torch prints two lines a rank and window

import torch
import torch.distributed as dist
import torch.distributed.nn.functional  # imported later, its functions' defaults would keep the process group alive

from sleeping import cycles_per_ms

PATIENCE_MS = 5000  # with what does not happen: that a collective which has ended is never let go


@dataclass(frozen=True)
class Job:
    """This process of the job. `device` is its GPU if every process of the host has one, else the CPU."""

    rank: int
    world_size: int
    device: torch.device


def choose_device(options: argparse.Namespace) -> torch.device:
    """Return the GPU of this process, or the CPU if `--device cpu` asks for it or the host has too few GPUs.

    With `--device shared` processes share the GPUs that there are. The first process of the job prints which, and why.
    """
    processes, place = int(os.environ.get("LOCAL_WORLD_SIZE", "1")), int(os.environ.get("LOCAL_RANK", "0"))
    gpus = torch.cuda.device_count() if options.device != "cpu" and torch.cuda.is_available() else 0
    shared = options.device == "shared" and 0 < gpus < processes
    if gpus >= processes or shared:
        device = torch.device("cuda", place % gpus)
        why = f"{'shared GPUs' if shared else 'a GPU for each process'}, {torch.cuda.get_device_name(device)}"
        if shared:
            # NCCL refuses two ranks of a host on one GPU. These it takes for hosts, which talk over the loopback.
            os.environ.update(NCCL_HOSTID=f"rank-{place}", NCCL_SOCKET_IFNAME="lo", NCCL_IB_DISABLE="1")
        torch.cuda.set_device(device)
        cycles_per_ms()  # measured now, so that no training step does it
    else:
        device = torch.device("cpu")
        few = f"{gpus} GPU{'s' * (gpus > 1)} for {processes} processes" if gpus else "no CUDA device"
        why = "as asked for" if options.device == "cpu" else few
    if os.environ.get("RANK", "0") == "0":
        print(f"Training on {device.type}: {why}", flush=True)
    return device


@contextmanager
def job(options: argparse.Namespace) -> Iterator[Job]:
    """Join the process group that torchrun describes (NCCL on GPUs, Gloo on CPUs), and leave it at the end.

    Rank 0 then prints how to read the recording below `options.out`.

    Leave no DDP model alive until then. Otherwise the model ends the group while it holds the interpreter's lock, and
    waits for ever if a thread of Gloo needs that lock to release its last tensor.
    """
    device = choose_device(options)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    process = Job(rank=dist.get_rank(), world_size=dist.get_world_size(), device=device)
    yield process
    sys.stdout.flush()  # else what other ranks print follows what rank 0 does
    leave_together(device)
    dist.destroy_process_group()
    if process.rank == 0:
        print(f"\nNext: tracekit analyze {shlex.quote(str(options.out))}")


def leave_together(device: torch.device) -> None:
    """Wait for the other ranks, then until no thread of Gloo holds a tensor.

    A rank that leaves while its last collective still runs on another rank may abort at exit. So does one whose thread
    of Gloo lets go of a tensor, for which it needs the interpreter's lock, while the interpreter ends. A barrier of
    Gloo would not do: it keeps earlier collectives, and frees them on that thread.
    """
    last = torch.zeros(1, device=device)

    def owners() -> tuple[int, int]:
        """Return those in Python, and those of the tensor itself, which alone tell with torch 2.6."""
        return sys.getrefcount(last), last._use_count()

    mine = owners()
    dist.all_reduce(last)
    for _ in range(PATIENCE_MS):
        if all(now <= before for now, before in zip(owners(), mine, strict=True)):
            break
        threading.Event().wait(0.001)


def require_package(name: str) -> None:
    """End the program, which cannot run without this package, if it is not installed; the first process says so."""
    if find_spec(name) is None:
        if os.environ.get("RANK", "0") == "0":
            print(f"Skipped: {Path(sys.argv[0]).name} needs {name}; pip install {name}", flush=True)
        sys.exit()


def run_options(description: str, out: str) -> argparse.ArgumentParser:
    """Return a parser with the folder of the run and the device."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--out", default=out, help="folder of the run")
    parser.add_argument(
        "--device",
        choices=("auto", "cpu", "shared"),
        default="auto",
        help="auto: a GPU for each process, if the host has as many; shared: fewer will do",
    )
    return parser


def training_options(
    description: str, out: str, steps: int = 9, *, recorded: int | None = None
) -> argparse.ArgumentParser:
    """Return a parser with the options of all probes; `recorded`: of those that let it be chosen, the default."""
    parser = run_options(description, out)
    parser.add_argument("--steps", type=int, default=steps, help="training steps; recording begins with the fifth")
    if recorded is not None:
        parser.add_argument("--recorded", type=int, default=recorded, help="steps that are recorded, from the fifth on")
    return parser


def add_slow_rank(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the options that plant a slow rank; `what` says which part of it is slow."""
    parser.add_argument("--slow-rank", type=int, default=-1, help=f"rank {what}")
    parser.add_argument("--delay-ms", type=float, default=20.0, help="by how much, a step")


def planted_delay_s(options: argparse.Namespace, process: Job) -> float:
    """Return by how many seconds a step of this rank takes longer."""
    return options.delay_ms / 1000 if process.rank == options.slow_rank else 0.0


def train(train_step: Callable[[], torch.Tensor | None], steps: int, *, prints: bool) -> None:
    """Run the steps; with `prints` this rank prints the loss of each step that has one."""
    for step in range(steps):
        loss = train_step()
        if prints and loss is not None:
            print(f"step {step}: loss {loss.item():.4f}")
