"""Data-parallel training (DDP) that saves checkpoints to a slow disk, evaluates, or logs: the rest of a step.

    torchrun --standalone --nproc-per-node 2 probes/checkpointing.py --slow-disk-ms 78 --sleep-compute

It uses NCCL if every process of the host has a GPU, else Gloo. After every `--save-every`-th step rank 0 saves a
checkpoint with `torch.save`, to a file whose flush takes `--slow-disk-ms`. Expected findings:

* `--slow-disk-ms 78`: "rank 0 saves a checkpoint for 78 ms while its peer waits": a little more than 78 ms a step.
* `--save-every 2`: the same 78 ms, in every second step: 39 ms a step.
* `--dcp`: all ranks save with `torch.distributed.checkpoint`, each to the slow disk: "all ranks save a checkpoint".
* `--async-save --save-every 4`: the same in a thread, while three steps run. No finding is about a checkpoint. With
  `--save-every 1` each save waits for the one before: "all ranks wait for a checkpoint in the background".
* `--evaluate-every 1`: after the step each rank runs 8 batches of 8 ms without gradients: "all ranks evaluate" for a
  little more than 64 ms a step. With `--evaluate-on 0`: "rank 0 evaluates ... while its peer waits".
* `--log-ms 20`: rank 0 logs for 20 ms a step: "rank 0 logs for 20 ms while its peer waits".
* `--slow-rank 1 --delay-ms 20`: "Straggler: rank 1 computes ... longer than its peer".
* `--slow-disk-ms 0`: no finding names a checkpoint.

`--sleep-compute`: layers sleep inside an autograd function, so more ranks than cores behave like devices.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.nn.parallel import DistributedDataParallel

import tracekit
from job import Job, add_slow_rank, job, planted_delay_s, training_options
from sleeping import SleepyLinear, sleep, sleep_on_host

WIDTH, LAYERS, BATCH = 256, 4, 16
SLEEP_S = 0.002
EVALUATED_BATCHES = 8


class SlowFile(io.FileIO):
    """A file whose first flush takes `flush_s`, as that of a slow disk does."""

    def __init__(self, path: Path, flush_s: float) -> None:
        super().__init__(path, "wb")
        self.flush_s = flush_s

    def flush(self) -> None:
        super().flush()
        seconds, self.flush_s = self.flush_s, 0.0
        sleep_on_host(seconds)


class SlowWriter(FileSystemWriter):
    """Writes the shards of a distributed checkpoint to a slow disk."""

    def __init__(self, path: Path, write_s: float) -> None:
        super().__init__(path, single_file_per_rank=True, sync_files=False)
        self.write_s = write_s

    def write_data(self, *args: Any) -> Any:
        sleep_on_host(self.write_s)
        return super().write_data(*args)


class SlowHandler(logging.NullHandler):
    """A log whose records take `handle_s`, as those sent to a server do."""

    def __init__(self, handle_s: float) -> None:
        super().__init__()
        self.handle_s = handle_s

    def handle(self, record: logging.LogRecord) -> bool:
        sleep_on_host(self.handle_s)
        return True


class Network(nn.Module):
    def __init__(self, sleep_compute: bool) -> None:
        super().__init__()
        layers = [SleepyLinear(WIDTH, SLEEP_S) if sleep_compute else nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x


def main() -> None:
    options = parse_options()
    with job(options) as process, tempfile.TemporaryDirectory() as folder:
        training(process, options, Path(folder))  # its model is gone before the process group is, which DDP holds


def training(process: Job, options: argparse.Namespace, folder: Path) -> None:
    torch.manual_seed(0)
    network = Network(options.sleep_compute).to(process.device)
    model = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batches = torch.Generator().manual_seed(1 + process.rank)
    log = logging.getLogger("training")
    log.addHandler(SlowHandler(options.log_ms / 1000))
    log.setLevel(logging.INFO)
    log.propagate = False

    def batch() -> Tensor:
        return torch.randn(BATCH, WIDTH, generator=batches).to(process.device)

    delay_s = planted_delay_s(options, process)

    @tracekit.probe(path=options.out, steps=options.recorded)
    def train_step() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        x = batch()
        loss = nn.functional.mse_loss(model(sleep(x, forward_s=delay_s)), torch.roll(x, 1, dims=-1))
        loss.backward()
        optimizer.step()
        return loss.detach()

    @torch.no_grad()
    def evaluate() -> float:
        network.eval()
        losses = [nn.functional.mse_loss(network(x), x) for x in (batch() for _ in range(EVALUATED_BATCHES))]
        network.train()
        return float(torch.stack(losses).mean())

    saving = Saving(process, options, folder)
    for step in range(options.steps):
        loss = train_step()
        if is_due(step, options.evaluate_every) and options.evaluate_on in (-1, process.rank):
            evaluate()
        if is_due(step, options.save_every):
            saving.save(step, {"model": network.state_dict(), "optimizer": optimizer.state_dict()})
        if process.rank == 0 and options.log_ms:
            log.info("step %d: loss %.4f", step, loss.item())
        elif process.rank == 0:
            print(f"step {step}: loss {loss.item():.4f}")
    saving.finish()


class Saving:
    """Saves checkpoints as the options say, into a folder of this process."""

    def __init__(self, process: Job, options: argparse.Namespace, folder: Path) -> None:
        self.process, self.folder = process, folder
        self.seconds = options.slow_disk_ms / 1000
        self.asynchronous, self.distributed = options.async_save, options.dcp or options.async_save
        # A save in the background communicates while the step does, so it needs a process group of its own.
        self.group = dist.new_group(backend="gloo") if self.asynchronous else None
        self.running: Any = None

    def save(self, step: int, state: dict[str, Any]) -> None:
        if self.asynchronous:
            self.finish()
            self.running = dcp.async_save(state, storage_writer=self.writer(step), process_group=self.group)
        elif self.distributed:
            dcp.save(state, storage_writer=self.writer(step))
        elif self.process.rank == 0:
            with contextlib.closing(SlowFile(self.folder / "checkpoint.pt", self.seconds)) as file:
                torch.save(state, file)

    def writer(self, step: int) -> SlowWriter:
        return SlowWriter(self.folder / f"step-{step}", self.seconds)

    def finish(self) -> None:
        if self.running is not None:
            self.running.result()


def is_due(step: int, every: int) -> bool:
    return every > 0 and (step + 1) % every == 0


def parse_options() -> argparse.Namespace:
    parser = training_options(
        "Training that saves checkpoints to a slow disk.", out="runs/checkpointing", steps=11, recorded=6
    )
    parser.add_argument("--slow-disk-ms", type=float, default=0.0, help="how long the disk takes for a checkpoint")
    add_slow_rank(parser, "whose forward pass is delayed")
    parser.add_argument("--save-every", type=int, default=1, help="steps from one checkpoint to the next; 0: none")
    parser.add_argument("--dcp", action="store_true", help="all ranks save, with torch.distributed.checkpoint")
    parser.add_argument("--async-save", action="store_true", help="the same with its async_save")
    parser.add_argument("--evaluate-every", type=int, default=0, help="steps from one evaluation to the next; 0: none")
    parser.add_argument("--evaluate-on", type=int, default=-1, help="the only rank that evaluates")
    parser.add_argument("--log-ms", type=float, default=0.0, help="how long rank 0 logs, a step")
    parser.add_argument("--sleep-compute", action="store_true", help="sleep instead of computing")
    return parser.parse_args()


if __name__ == "__main__":
    main()
