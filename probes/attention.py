"""Attention over a sequence that is split over all ranks, and how the probes of context parallelism train it.

How a rank comes by the keys of the others is what these probes differ in: context.py, ring_attention.py.
"""

from __future__ import annotations

import argparse
from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh

import tracekit
from job import add_slow_rank, job, planted_delay_s, train, training_options
from sleeping import sleep

WIDTH, HEADS = 32, 4
BATCH, SEQUENCE = 2, 64
SLEEP_S = 0.003


class Attention(nn.Module, ABC):
    """Attention of this rank's queries to the keys of all ranks, which a subclass brings together in `attend`.

    Its input is [sequence, batch, width], a part of the sequence. Inside tensors are [sequence, batch, heads, size].
    """

    def __init__(self, group: dist.ProcessGroup, forward_s: float) -> None:
        super().__init__()
        self.projection, self.output = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.group, self.forward_s = group, forward_s

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (t.unflatten(-1, (HEADS, -1)) for t in self.projection(x).chunk(3, dim=-1))
        return self.output(self.attend(query, key, value).flatten(-2))

    @abstractmethod
    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Return what this rank's queries read from the values of all ranks."""

    def compute(self, x: Tensor) -> Tensor:
        """Return `x` after `forward_s` seconds; its gradient takes twice that."""
        return sleep(x, forward_s=self.forward_s, backward_s=2 * self.forward_s) if self.forward_s else x


class AttentionLayer(nn.Module):
    """x + attention(norm(x))"""

    def __init__(self, attention: Attention) -> None:
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(WIDTH), attention

    def forward(self, x: Tensor) -> Tensor:
        return x + self.attention(self.norm(x))


def train_attention(options: argparse.Namespace, make: Callable[[dist.ProcessGroup, float], Attention]) -> None:
    """Train a layer; `make` gets the group of all ranks, and the seconds that the attention sleeps forward."""
    with job(options) as process:
        torch.manual_seed(0)  # the same parameters on all ranks
        mesh = init_device_mesh(process.device.type, (process.world_size,), mesh_dim_names=("cp",))
        attention = make(mesh.get_group(), SLEEP_S if options.sleep_compute else 0.0)
        layer = AttentionLayer(attention).to(process.device)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)
        batches = torch.Generator().manual_seed(1)
        delay_s = planted_delay_s(options, process)

        @tracekit.probe(path=options.out, steps=options.recorded)
        def train_step() -> Tensor:
            optimizer.zero_grad(set_to_none=True)
            whole = torch.randn(SEQUENCE, BATCH, WIDTH, generator=batches).to(process.device)
            x = whole.chunk(process.world_size)[process.rank]
            loss = nn.functional.mse_loss(layer(sleep(x, forward_s=delay_s)), torch.roll(x, 1, dims=-1))
            loss.backward()
            for parameter in layer.parameters():
                dist.all_reduce(parameter.grad, group=mesh.get_group())
                parameter.grad /= process.world_size
            optimizer.step()
            return loss.detach()

        train(train_step, options.steps, prints=process.rank == 0)


def attention_options(description: str, out: str) -> argparse.ArgumentParser:
    """Return a parser with the options of these probes."""
    parser = training_options(description, out=out, recorded=4)
    add_slow_rank(parser, "that computes longer")
    parser.add_argument("--sleep-compute", action="store_true", help="attention sleeps as well")
    return parser
