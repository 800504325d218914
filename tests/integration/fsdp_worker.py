"""Ranks of the FSDP tests, under torchrun. Each scenario records into its folder.

`fsdp_worker.py <out>` is for two ranks, `fsdp_worker.py <out> hybrid` for four. Writes `<out>/facts-<rank>.json`: what
training itself observed, for the tests to compare with the recordings.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("KINETO_LOG_LEVEL", "99")

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    FullyShardedDataParallel,
    MixedPrecision,
    MixedPrecisionPolicy,
    ShardingStrategy,
    fully_shard,
)

from tests.old_torch import FSDP2_ON_CPUS
from tracekit.capture.probe import probe

WIDTH = 32
STEPS = 5
CPU = torch.device("cpu")


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.ReLU(), nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.mlp(torch.relu(self.attention(x)))


class Network(nn.Module):
    """A module with a parameter, and a weight that its first and its last layer share."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(WIDTH))
        self.first = nn.Linear(WIDTH, WIDTH, bias=False)
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.last = nn.Linear(WIDTH, WIDTH, bias=False)
        self.last.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x * self.scale)
        for block in self.blocks:
            x = block(x)
        return self.last(x)


def shard_twice_nested(model: Network, **options: Any) -> nn.Module:
    """Shard with FSDP2; the inner part of the second block is a separate unit."""
    fully_shard(model.blocks[1].mlp, **options)
    for block in model.blocks:
        fully_shard(block, **options)
    return fully_shard(model, **options)


def shard_and_prefetch(model: Network) -> nn.Module:
    shard_twice_nested(model)
    blocks = list(model.blocks)
    blocks[0].set_modules_to_forward_prefetch([blocks[1], blocks[2]])
    blocks[2].set_modules_to_backward_prefetch([blocks[1], blocks[0]])
    return model


def shard_checkpointed(model: Network) -> nn.Module:
    fully_shard(model.blocks[1].mlp)
    for number, block in enumerate(model.blocks):
        model.blocks[number] = checkpoint_wrapper(block)
    for block in model.blocks:
        fully_shard(block)
    return fully_shard(model)


def shard_compiled(model: Network) -> nn.Module:
    return torch.compile(shard_twice_nested(model), backend="aot_eager")  # type: ignore[return-value]


def shard_in_half_precision(model: Network) -> nn.Module:
    """Shard so that parameters are gathered in 16 bits and gradients reduced in 32."""
    return shard_twice_nested(
        model, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    )


def shard_and_keep(model: Network) -> nn.Module:
    """Shard so that parameters stay gathered between forward and backward, and rest in host memory between steps."""
    return shard_twice_nested(model, reshard_after_forward=False, offload_policy=CPUOffloadPolicy(pin_memory=False))


def wrap_and_keep(model: Network) -> nn.Module:
    """Do the same with FSDP1, but for the host memory, and with other settings than the default ones."""
    return wrap_twice_nested(
        model,
        sharding_strategy=ShardingStrategy.SHARD_GRAD_OP,
        backward_prefetch=None,
        limit_all_gathers=False,
        mixed_precision=MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
    )


def shard_oddly(model: Network) -> nn.Module:
    """Shard a model with a layer of 3 rows, which cannot be divided evenly over two ranks."""
    model.blocks[2].mlp = nn.Sequential(nn.Linear(WIDTH, 3), nn.Linear(3, WIDTH))
    return shard_twice_nested(model)


def shard_together(model: Network) -> nn.Module:
    """Shard two blocks as one unit, and the last block as another."""
    fully_shard([model.blocks[0], model.blocks[1]])
    fully_shard(model.blocks[2])
    return fully_shard(model)


def wrap_twice_nested(model: Network, **options: Any) -> nn.Module:
    """Shard with FSDP1, in the same units as `shard_twice_nested`."""
    model.blocks[1].mlp = FullyShardedDataParallel(model.blocks[1].mlp, device_id=CPU, **options)
    for number, block in enumerate(model.blocks):
        model.blocks[number] = FullyShardedDataParallel(block, device_id=CPU, **options)
    return FullyShardedDataParallel(model, device_id=CPU, **options)


def train(
    out: Path | None, shard: Callable[[Network], nn.Module], *, steps: int = STEPS, micro_batches: int = 1
) -> dict[str, Any]:
    """Train, recorded below `out` unless that is None.

    Return the losses, the names of the units in the model, and the bytes of each parameter by name.
    """
    torch.manual_seed(0)
    network = Network()
    whole = {id(parameter): parameter.numel() * 4 for parameter in network.parameters()}
    owners = {id(parameter): name for name, parameter in network.named_parameters()}
    sizes = {owners[key]: size for key, size in whole.items()}
    model = shard(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = torch.Generator().manual_seed(dist.get_rank())

    def step() -> float:
        total = 0.0
        for number in range(micro_batches):
            last = number == micro_batches - 1
            if isinstance(model, FSDPModule):
                model.set_requires_gradient_sync(last)
            with model.no_sync() if isinstance(model, FullyShardedDataParallel) and not last else nullcontext():
                loss = model(torch.randn(8, WIDTH, generator=batches)).square().mean()
                loss.backward()
            total += loss.item()
        optimizer.step()
        optimizer.zero_grad()
        return total

    recorder = probe(path=out, skip=1, warmup=1, steps=2) if out else None
    recorded = recorder(step) if recorder else step
    losses = [recorded() for _ in range(steps)]
    units = [
        name for name, module in model.named_modules() if isinstance(module, FSDPModule | FullyShardedDataParallel)
    ]
    if recorder:
        recorder.finish()
    return {"losses": losses, "modules": units, "parameter_bytes": sizes}


def fsdp2_of_two_ranks(out: Path) -> dict[str, Any]:
    return {
        "fsdp2_plain": train(None, shard_twice_nested),
        "fsdp2": train(out / "fsdp2", shard_twice_nested),
        "fsdp2_prefetch": train(out / "fsdp2_prefetch", shard_and_prefetch),
        "fsdp2_checkpointed": train(out / "fsdp2_checkpointed", shard_checkpointed),
        "fsdp2_compiled": train(out / "fsdp2_compiled", shard_compiled),
        "fsdp2_together": train(out / "fsdp2_together", shard_together),
        "fsdp2_mixed": train(out / "fsdp2_mixed", shard_in_half_precision),
        "fsdp2_kept": train(out / "fsdp2_kept", shard_and_keep),
        "fsdp2_padded": train(out / "fsdp2_padded", shard_oddly),
        "fsdp2_accumulate": train(out / "fsdp2_accumulate", shard_twice_nested, micro_batches=2),
    }


def fsdp1_of_two_ranks(out: Path) -> dict[str, Any]:
    return {
        "fsdp1_plain": train(None, wrap_twice_nested),
        "fsdp1": train(out / "fsdp1", wrap_twice_nested),
        "fsdp1_prefetch": train(
            out / "fsdp1_prefetch", lambda model: wrap_twice_nested(model, forward_prefetch=True, use_orig_params=True)
        ),
        "fsdp1_kept": train(out / "fsdp1_kept", wrap_and_keep),
        "fsdp1_accumulate": train(out / "fsdp1_accumulate", wrap_twice_nested, micro_batches=2),
    }


def fsdp2_of_four_ranks(out: Path) -> dict[str, Any]:
    """Train two replicas of two shards on a mesh with names."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    return {"fsdp2_hybrid": train(out / "fsdp2_hybrid", partial(shard_twice_nested, mesh=mesh))}


def fsdp1_of_four_ranks(out: Path) -> dict[str, Any]:
    """Train two replicas of two shards on a mesh without names."""
    mesh, strategy = init_device_mesh("cpu", (2, 2)), ShardingStrategy.HYBRID_SHARD
    wrap = partial(wrap_twice_nested, device_mesh=mesh, sharding_strategy=strategy)
    return {"fsdp1_hybrid": train(out / "fsdp1_hybrid", wrap)}


def main() -> None:
    out = Path(sys.argv[1])
    dist.init_process_group("gloo")
    jobs = [fsdp2_of_two_ranks, fsdp1_of_two_ranks]
    if sys.argv[2:] == ["hybrid"]:
        jobs = [fsdp2_of_four_ranks, fsdp1_of_four_ranks]
    facts: dict[str, Any] = {}
    for job in jobs if FSDP2_ON_CPUS else jobs[1:]:
        facts |= job(out)
    (out / f"facts-{dist.get_rank()}.json").write_text(json.dumps(facts))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
