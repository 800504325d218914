"""The training that `bucket_whatif.py` records: the network of `probes/ddp.py` with several bucket sizes.

A run for each size is written below the folder. The sizes alternate, one window at a time, so that other load on the
machine affects all of them.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("KINETO_LOG_LEVEL", "99")
sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import tracekit

BATCH, CLASSES = 64, 10
SKIP, WARMUP, BETWEEN = 3, 1, 2  # two more calls close a window and let the next one begin elsewhere

_kept: list[torch.Tensor] = []


def training(out: Path, cap_mb: float, width: int, steps: int, windows: int) -> Callable[[], None]:
    from ddp import Network

    torch.manual_seed(0)
    model = DistributedDataParallel(Network(width, 0.0, True), bucket_cap_mb=cap_mb)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    x, target = torch.randn(BATCH, width), torch.randint(CLASSES, (BATCH,))

    @tracekit.probe(
        path=out / f"cap-{cap_mb:g}",
        skip=SKIP,
        warmup=WARMUP,
        steps=steps,
        repeat=windows,
        every=WARMUP + steps + BETWEEN,
    )
    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(model(x), target).backward()
        optimizer.step()

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--caps", type=float, nargs="+", required=True)
    parser.add_argument("--width", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--windows", type=int, required=True)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    jobs = [training(options.out, cap, options.width, options.steps, options.windows) for cap in options.caps]
    for step in jobs:
        for _ in range(SKIP):
            step()
    for _ in range(options.windows):
        for step in jobs:
            for _ in range(WARMUP + options.steps + BETWEEN):
                step()
    _kept.append(torch.zeros(1))  # no barrier: see `probes/job.py`
    dist.all_reduce(_kept[-1])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
