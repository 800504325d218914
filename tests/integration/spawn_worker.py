"""A job that starts its ranks with `mp.spawn` and joins the process group inside its only step."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from tracekit.capture.probe import probe


def train(rank: int, out: str, store: str) -> None:
    @probe(path=out, skip=0, warmup=0)
    def step() -> None:
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
        dist.all_reduce(torch.ones(3))

    step()


if __name__ == "__main__":
    mp.spawn(train, args=(sys.argv[1], sys.argv[2]), nprocs=2)
