"""What the ranks of the DDP tests run, under torchrun: each scenario records below its own folder.

Writes `<out>/facts-<rank>.json`: what training saw itself, for the tests to compare the recordings with.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("KINETO_LOG_LEVEL", "99")

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tracekit.capture.probe import probe

STEPS = 4


class Branches(nn.Module):
    """A stack of layers, and one that no step uses."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(64, 64) for _ in range(6)))
        self.unused = nn.Linear(64, 64)
        self.unused.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def train(out: Path | None, steps: int = STEPS, micro_batches: int = 1, **options: Any) -> dict[str, Any]:
    """Losses and the reducer's own bucket map of a training run, recorded below `out` unless that is None."""
    torch.manual_seed(dist.get_rank())
    model = DistributedDataParallel(Branches(), bucket_cap_mb=0.03, **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    names = {id(parameter): name for name, parameter in model.module.named_parameters()}

    def step() -> float:
        for _ in range(micro_batches - 1):
            with model.no_sync():
                model(torch.randn(8, 64)).square().mean().backward()
        loss = model(torch.randn(8, 64)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    recorder = probe(path=out, skip=1, warmup=1, steps=2) if out else None
    recorded = recorder(step) if recorder else step
    losses = [recorded() for _ in range(steps)]
    buckets = [[names[id(p)] for p in bucket.parameters()] for bucket in model.reducer._get_zeros_like_grad_buckets()]
    if recorder:
        recorder.finish()
    return {"losses": losses, "buckets": buckets}


def wait_for_peers(out: Path) -> None:
    """One synchronous collective a step, one waited for later."""

    @probe(path=out, skip=0, warmup=0, steps=2)
    def step() -> None:
        dist.all_reduce(torch.ones(10))
        pending = dist.all_reduce(torch.ones(20), async_op=True)
        torch.ones(5).sum()
        pending.wait()

    for _ in range(3):
        step()


def main() -> None:
    out = Path(sys.argv[1])
    dist.init_process_group("gloo")
    facts = {
        "plain": train(None),
        "recorded": train(out / "recorded"),
        "find_unused": train(out / "find_unused", find_unused_parameters=True),
        "static_graph": train(out / "static_graph", static_graph=True),
        "accumulate": train(out / "accumulate", micro_batches=2),
        "one_step": train(out / "one_step", steps=1),
    }
    wait_for_peers(out / "waits")
    half = dist.new_group([dist.get_rank()])
    dist.all_reduce(torch.ones(1), group=half)

    # The last recording is ended by the destruction of the group.
    @probe(path=out / "destroyed", skip=0, warmup=0, steps=2)
    def last() -> None:
        dist.all_reduce(torch.ones(1))

    last()
    last()
    (out / f"facts-{dist.get_rank()}.json").write_text(json.dumps(facts))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
