"""Ranks of the DDP tests, under torchrun. Each scenario records into its folder.

Writes `<out>/facts-<rank>.json`: what training itself observed, for the tests to compare with the recordings.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("KINETO_LOG_LEVEL", "99")

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel

from tracekit.capture.probe import probe

STEPS = 4


class Branches(nn.Module):
    """A stack of layers, and one layer that no step uses."""

    def __init__(self, batch_norm: bool = False, width: int = 64) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(width, width) for _ in range(6)))
        if batch_norm:
            self.layers.append(nn.BatchNorm1d(width, affine=False))
        self.unused = nn.Linear(width, width)
        self.unused.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def in_two_parts(state, bucket):  # without annotations, as DDP rejects those that are strings
    """A communication hook with two collectives for each bucket, one of which blocks."""
    gradients = bucket.buffer().div_(dist.get_world_size())
    dist.all_reduce(gradients[:8])
    rest = dist.all_reduce(gradients[8:], async_op=True).get_future()
    return rest.then(lambda _: gradients)


def train(
    out: Path | None,
    steps: int = STEPS,
    micro_batches: int = 1,
    hook: Any = None,
    batch_norm: bool = False,
    compiled: bool = False,
    cap_mb: float = 0.03,
    uneven: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """Return losses and the reducer's buckets of a training run, recorded below `out` unless that is None."""
    torch.manual_seed(dist.get_rank())
    # Created before the hook is registered, as by a decorator at the top of a script.
    recorder = probe(path=out, skip=1, warmup=1, steps=2) if out else None
    model = DistributedDataParallel(Branches(batch_norm), bucket_cap_mb=cap_mb, **options)
    if isinstance(hook, dist.BuiltinCommHookType):
        model._register_builtin_comm_hook(hook)
    elif hook is not None:
        model.register_comm_hook(None, hook)
    call = torch.compile(model, backend="eager") if compiled else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    names = {id(parameter): name for name, parameter in model.module.named_parameters()}

    def step() -> float:
        for _ in range(micro_batches - 1):
            with model.no_sync():
                call(torch.randn(8, 64)).square().mean().backward()
        loss = call(torch.randn(8, 64)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    recorded = recorder(step) if recorder else step
    with model.join() if uneven else contextlib.nullcontext():
        losses = [recorded() for _ in range(steps + 2 * dist.get_rank() * uneven)]
    buckets = [[names[id(p)] for p in bucket.parameters()] for bucket in model.reducer._get_zeros_like_grad_buckets()]
    if recorder:
        recorder.finish()
    logged = model._get_ddp_logging_data()
    sizes = logged.get("rebuilt_bucket_sizes") or logged["bucket_sizes"]
    return {"losses": losses, "buckets": buckets, "sizes": [int(size) for size in sizes.split(",")]}


def times_logged_by_ddp(out: Path, width: int = 512) -> dict[int, dict[str, int]]:
    """Return by step what DDP measured in its backward pass, which it reports after the next forward pass."""
    model = DistributedDataParallel(Branches(width=width), bucket_cap_mb=2)
    model._set_ddp_runtime_logging_sample_rate(1)
    times: dict[int, dict[str, int]] = {}

    @probe(path=out, skip=1, warmup=1, steps=4)
    def step(number: int) -> None:
        loss = model(torch.randn(8, width)).square().mean()
        logged = model._get_ddp_logging_data()
        times[number - 1] = {"backward_comm_time": logged.get("backward_comm_time", 0)}
        loss.backward()

    for number in range(8):
        step(number)
    return times


def wait_for_peers(out: Path) -> None:
    """Record steps with a synchronous collective, and one that is waited for later."""

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
        "static_graph": train(
            out / "static_graph", static_graph=True, gradient_as_bucket_view=True, broadcast_buffers=False
        ),
        "accumulate": train(out / "accumulate", micro_batches=2),
        "one_step": train(out / "one_step", steps=1),
        "plain_fp16": train(None, hook=fp16_compress_hook),
        "fp16": train(out / "fp16", hook=fp16_compress_hook),
        "built_in": train(out / "built_in", hook=dist.BuiltinCommHookType.FP16_COMPRESS),
        "two_parts": train(out / "two_parts", hook=in_two_parts),
        "batch_norm": train(out / "batch_norm", batch_norm=True),
        "uneven": train(out / "uneven", uneven=True),
        "logged": times_logged_by_ddp(out / "logged"),
        "compiled": train(out / "compiled", compiled=True, cap_mb=25.0),
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
