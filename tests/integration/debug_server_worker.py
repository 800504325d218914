"""A rank that trains until `<out>/done` is there, and lets torch's debug server record it. Rank 1 computes longer.

Writes `<out>/url-<rank>`, the server's address, once it trains.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import _WorkerServer
from torch.distributed import debug  # noqa: F401 (registers what the server records)
from torch.nn.parallel import DistributedDataParallel

COMPUTE_S = (0.010, 0.025)


class Compute(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, seconds):
        ctx.seconds = seconds
        time.sleep(seconds)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(ctx.seconds)
        return gradient, None


def main(out: Path) -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    server = _WorkerServer("127.0.0.1", 0)
    layers = nn.Sequential(*(nn.Linear(64, 64) for _ in range(4)))
    model = DistributedDataParallel(layers, bucket_cap_mb=0.02)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    steps, more = 0, torch.ones(1)
    while more.item():
        optimizer.zero_grad()
        Compute.apply(model(torch.ones(8, 64)), COMPUTE_S[rank]).sum().backward()
        optimizer.step()
        steps += 1
        if steps == 3:
            (out / f"new-{rank}").write_text(f"http://127.0.0.1:{server.port}")
            (out / f"new-{rank}").rename(out / f"url-{rank}")
        more.fill_(not (out / "done").exists())
        dist.broadcast(more, 0)
    server.shutdown()
    dist.destroy_process_group()


main(Path(sys.argv[1]))
