"""A recorded job that leaves its process group: `leaving_worker.py OUT` prints how many Gloo threads remain."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

import torch
import torch.distributed as dist

from tracekit.capture.probe import probe

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)


@probe(path=sys.argv[1], skip=0, warmup=1, steps=1)
def step() -> None:
    dist.all_reduce(torch.ones(3))


for _ in range(3):
    step()
dist.destroy_process_group()
gloo = 0
for task in Path("/proc/self/task").iterdir():
    with suppress(FileNotFoundError):  # a thread that ends meanwhile
        gloo += (task / "comm").read_text().strip() == "pt_gloo_runloop"
print("gloo threads:", gloo)
