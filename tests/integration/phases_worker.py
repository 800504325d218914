"""Ranks of the phase and memory tests, under torchrun. Each scenario records into its folder.

Writes `<out>/facts-<rank>.json`: losses with and without the probe, and bytes counted independently.
"""

from __future__ import annotations

import functools
import gc
import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

os.environ.setdefault("KINETO_LOG_LEVEL", "99")

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

from tests.old_torch import FSDP2_ON_CPUS
from tracekit.capture.probe import probe

STEPS = 5
BLOCKS = 6
WIDTH = 32
LOADING_S = 0.03


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.dropout = nn.Dropout(0.1)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(self.dropout(torch.relu(self.up(x))))


class Network(nn.Module):
    """Every second block is checkpointed, by one of torch's implementations."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        wrapped = checkpoint_wrapper if how == "wrapper" else lambda block: block
        self.blocks = nn.ModuleList(wrapped(Block()) if i % 2 else Block() for i in range(BLOCKS))

    def forward(self, x: Tensor) -> Tensor:
        for i, block in enumerate(self.blocks):
            if i % 2 and self.how in {"reentrant", "non_reentrant"}:
                x = checkpoint(block, x, use_reentrant=self.how == "reentrant")
            else:
                x = block(x)
        return x


def train(
    out: Path | None,
    *,
    how: str = "none",
    micro_batches: int = 1,
    amp: torch.dtype | None = None,
    infinite_in: int | None = None,
) -> list[float]:
    """Return the losses of a training run, recorded below `out` unless that is None.

    In step `infinite_in` its gradients are infinite.
    """
    torch.manual_seed(dist.get_rank())
    network = Network(how)
    optimizer = torch.optim.AdamW(network.parameters())
    scaler = torch.amp.GradScaler("cpu", enabled=amp is torch.float16)
    numbers = itertools.count()

    def step() -> float:
        number, total = next(numbers), 0.0
        optimizer.zero_grad()
        for _ in range(micro_batches):
            with torch.autocast("cpu", dtype=amp or torch.bfloat16, enabled=amp is not None):
                loss = network(torch.randn(8, WIDTH)).square().mean() / micro_batches
            scaler.scale(loss * (float("inf") if number == infinite_in else 1.0)).backward()
            total += loss.item()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return total

    recorder = probe(path=out, skip=1, warmup=1, steps=3) if out else None
    recorded = recorder(step) if recorder else step
    losses = [recorded() for _ in range(STEPS)]
    if recorder:
        recorder.finish()
    return losses


class Slow(Dataset[Tensor]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> Tensor:
        time.sleep(LOADING_S / 4)
        return torch.full((WIDTH,), float(index))


def load(out: Path, wrapped: bool) -> None:
    """Train on batches of four slow items, from torch's data loader alone or wrapped by the probe."""
    network = Network("none")
    recorder = probe(path=out, skip=1, warmup=0, steps=3)
    loader: Iterable[Tensor] = DataLoader(Slow(), batch_size=4)
    step = recorder(lambda batch: network(batch).sum().backward())
    for batch in itertools.islice(recorder.iterate(loader) if wrapped else loader, 5):
        step(batch)
    recorder.finish()


def bytes_of(tensors: Iterable[Any]) -> int:
    """Return the bytes by number of elements; of a DTensor the local ones count."""
    local = [tensor.to_local() if hasattr(tensor, "to_local") else tensor for tensor in tensors]
    return sum(tensor.numel() * tensor.element_size() for tensor in local)


def count_memory(out: Path, build: Callable[[], nn.Module]) -> dict[str, int]:
    """Record a model that is alone in the process, and count its bytes."""
    model = build()
    optimizer = torch.optim.AdamW(model.parameters())
    expected: dict[str, int] = {}

    def step() -> None:
        model(torch.randn(8, WIDTH)).square().mean().backward()
        expected["gradient_bytes"] = bytes_of(p.grad for p in model.parameters())
        optimizer.step()
        optimizer.zero_grad()  # gone before the step ends

    recorder = probe(path=out, skip=1, warmup=0, steps=2)
    recorded = recorder(step)
    for _ in range(3):
        recorded()
    expected["parameter_bytes"] = bytes_of(model.parameters())
    state = [value for values in optimizer.state.values() for value in values.values()]
    expected["optimizer_bytes"] = bytes_of(state)
    recorder.finish()
    return expected


def tied() -> nn.Module:
    """Return a model with two layers that share a weight, and one on the meta device."""
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH, bias=False))
    model[1].weight = model[0].weight
    model.shadow = [nn.Linear(WIDTH, WIDTH, device="meta")]
    return model


def sharded() -> nn.Module:
    model = nn.Sequential(*(Block() for _ in range(3)))
    for block in model:
        fully_shard(block)
    return fully_shard(model)


def parallel() -> nn.Module:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    plan = {"0.up": ColwiseParallel(), "0.down": RowwiseParallel()}
    block = Block()
    block.dropout = nn.Dropout(0.0)
    return parallelize_module(nn.Sequential(block), mesh, plan)


def main() -> None:
    out = Path(sys.argv[1])
    dist.init_process_group("gloo")
    facts: dict[str, Any] = {"memory": {}, "losses": {}}
    # First, while no other module is alive.
    for build in (tied, sharded, parallel) if FSDP2_ON_CPUS else (tied, parallel):
        facts["memory"][build.__name__] = count_memory(out / build.__name__, build)
        gc.collect()
    for name, options in {
        "reentrant": {"how": "reentrant"},
        "non_reentrant": {"how": "non_reentrant"},
        "wrapper": {"how": "wrapper"},
        "accumulate": {"how": "reentrant", "micro_batches": 3},
        "bfloat16": {"amp": torch.bfloat16, "how": "non_reentrant"},
        "float16": {"amp": torch.float16, "how": "reentrant", "infinite_in": 3},
    }.items():
        run = functools.partial(train, **options)
        facts["losses"][name] = {"plain": run(None), "recorded": run(out / name)}
    for wrapped in (False, True):
        load(out / f"loader_{wrapped}", wrapped)
    (out / f"facts-{dist.get_rank()}.json").write_text(json.dumps(facts))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
