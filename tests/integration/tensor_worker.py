"""Ranks of the tests of tensor, expert and context parallelism, under torchrun. Each scenario records into its folder.

Writes `<out>/facts-<rank>.json`: the losses of each scenario, with and without a recording.
"""

from __future__ import annotations

import contextlib
import gc
import json
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import ColwiseParallel, loss_parallel, parallelize_module

from blocks import Block, Network, shard_by_hand, shard_with_dtensor
from expert import MixtureOfExperts
from ring_attention import RingAttention
from tracekit.capture.probe import probe

WIDTH, SLEEP_S = 32, 0.002
Build = Callable[[DeviceMesh], nn.Module]


def dtensor(mesh: DeviceMesh) -> nn.Module:
    network = Network(WIDTH, 2, 8, SLEEP_S)
    shard_with_dtensor(network, mesh)
    return network


def sequence(mesh: DeviceMesh) -> nn.Module:
    network = Network(WIDTH, 2, 8, SLEEP_S)
    shard_with_dtensor(network, mesh, sequence_parallel=True)
    return network


def by_hand(mesh: DeviceMesh) -> nn.Module:
    network = Network(WIDTH, 2, 8, SLEEP_S)
    shard_by_hand(network, mesh.get_group())
    return network


def compiled(mesh: DeviceMesh) -> nn.Module:
    block = Block(WIDTH)
    shard_with_dtensor(block, mesh)
    block.up.compile(backend="eager")
    return block


class LossParallel(nn.Module):
    """A layer whose output is split by class, as the loss that is computed from it is."""

    def __init__(self, mesh: DeviceMesh) -> None:
        super().__init__()
        self.head = nn.Linear(WIDTH, 16)
        layout = ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)
        parallelize_module(self, mesh, {"head": layout})

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x)


def experts(mesh: DeviceMesh) -> nn.Module:
    return MixtureOfExperts(mesh.get_group(), hot=1, functional=False, token_s=20e-6)


def even_experts(mesh: DeviceMesh) -> nn.Module:
    return MixtureOfExperts(mesh.get_group(), hot=-1, functional=False, token_s=0.0)


def functional_experts(mesh: DeviceMesh) -> nn.Module:
    return MixtureOfExperts(mesh.get_group(), hot=1, functional=True, token_s=0.0)


def ring(mesh: DeviceMesh) -> nn.Module:
    return RingAttention(mesh.get_group(), SLEEP_S)


def train(build: Build, shape: tuple[int, ...], name: str | None, out: Path | None, steps: int = 5) -> list[float]:
    """Train on a new group and return the losses; the mesh has names only if `name` is given."""
    names = None if name is None else (name,)
    mesh = DeviceMesh.from_group(dist.new_group([0, 1]), "cpu", mesh_dim_names=names)
    torch.manual_seed(0)
    model = build(mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    batches = torch.Generator().manual_seed(1)

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        output = model(torch.randn(shape, generator=batches))
        with loss_parallel() if isinstance(model, LossParallel) else contextlib.nullcontext():
            if isinstance(model, LossParallel):
                loss = nn.functional.cross_entropy(output, torch.randint(16, shape[:1], generator=batches))
            else:
                loss = output.square().mean()
            loss.backward()
        optimizer.step()
        return loss.detach()

    recorder = probe(path=out, skip=2, warmup=1, steps=2) if out else None
    recorded = recorder(step) if recorder else step
    losses = [recorded().item() for _ in range(steps)]
    if recorder:
        recorder.finish()
    return losses


SCENARIOS: dict[str, tuple[Build, tuple[int, ...], str | None]] = {
    "dtensor": (dtensor, (2, 8, WIDTH), "tp"),
    "dtensor_unnamed": (dtensor, (2, 8, WIDTH), None),
    "sequence": (sequence, (2, 4, WIDTH), "tp"),
    "loss_parallel": (LossParallel, (8, WIDTH), "tp"),
    "by_hand_unnamed": (by_hand, (2, 8, WIDTH), None),
    "experts": (experts, (240, WIDTH), "ep"),
    "even_experts": (even_experts, (240, WIDTH), "ep"),
    "functional_experts_unnamed": (functional_experts, (240, WIDTH), None),
    "ring": (ring, (8, 2, WIDTH), "cp"),
    "compiled": (compiled, (2, 8, WIDTH), "tp"),  # last, as compiled code stays
}


def main() -> None:
    out = Path(sys.argv[1])
    dist.init_process_group("gloo")
    facts = {}
    for scenario, (build, shape, name) in SCENARIOS.items():
        plain = train(build, shape, name, None)
        gc.collect()  # or modules of one scenario are still alive in the next
        facts[scenario] = {"plain": plain, "recorded": train(build, shape, name, out / scenario)}
        gc.collect()
    (out / f"facts-{dist.get_rank()}.json").write_text(json.dumps(facts))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
