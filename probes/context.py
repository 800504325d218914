"""Context parallelism: attention over a sequence that is split over all ranks, with one of three methods.

    torchrun --standalone --nproc-per-node 2 probes/context.py --method ring --sleep-compute

* `--method ring`: keys and values pass around the ring of ranks by send and receive, hop by hop.
* `--method ulysses`: an all-to-all turns shards of the sequence into shards of heads, and another one turns the result
  back.
* `--method gather`: keys and values of all ranks are gathered; their gradients are reduced and scattered.

Expected findings: strategy cp, with a group of all ranks. The collectives of ulysses and gather are listed under module
`attention`, and at most 2 % of them overlaps. The hops of the ring do not overlap either: each is waited for before the
next block is computed, which is the planted defect.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh

import tracekit
from job import job, train, training_options
from sleeping import sleep

WIDTH, HEADS = 32, 4
BATCH, SEQUENCE = 2, 64
SLEEP_S = 0.003


class _Hop(torch.autograd.Function):
    """Returns what the previous rank of the ring has; gradients go in the other direction."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return _shift(x, 1, group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _shift(gradient, -1, ctx.group), None


def _shift(x: Tensor, by: int, group: dist.ProcessGroup) -> Tensor:
    place, ranks = dist.get_rank(group), dist.get_process_group_ranks(group)
    x, received = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
    to_peer, from_peer = ranks[(place + by) % len(ranks)], ranks[(place - by) % len(ranks)]
    hops = [
        dist.P2POp(dist.isend, x, to_peer, group),
        dist.P2POp(dist.irecv, received, from_peer, group),
    ]
    for work in dist.batch_isend_irecv(hops):
        work.wait()
    return received


class _Transpose(torch.autograd.Function):
    """[ranks, ...]: exchanges the part for each rank for the part from each rank; gradients go back the same way."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        received = torch.empty_like(x, memory_format=torch.contiguous_format)
        dist.all_to_all_single(received, x.contiguous(), group=group)
        return received

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        received = torch.empty_like(gradient, memory_format=torch.contiguous_format)
        dist.all_to_all_single(received, gradient.contiguous(), group=ctx.group)
        return received, None


class _Gather(torch.autograd.Function):
    """Concatenates the parts of all ranks along the first dimension; the gradient of a part is summed over ranks."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        gathered = x.new_empty((dist.get_world_size(group) * x.shape[0], *x.shape[1:]))
        dist.all_gather_into_tensor(gathered, x.contiguous(), group=group)
        return gathered

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        part = gradient.new_empty((gradient.shape[0] // dist.get_world_size(ctx.group), *gradient.shape[1:]))
        dist.reduce_scatter_tensor(part, gradient.contiguous(), group=ctx.group)
        return part, None


class Attention(nn.Module):
    """Attention of this rank's queries to the keys of all ranks. Tensors inside are [sequence, batch, heads, size]."""

    def __init__(self, group: dist.ProcessGroup, method: str, forward_s: float) -> None:
        super().__init__()
        self.projection, self.output = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.group, self.method, self.forward_s = group, method, forward_s

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (t.unflatten(-1, (HEADS, -1)) for t in self.projection(x).chunk(3, dim=-1))
        attend = {"ring": self.ring, "ulysses": self.ulysses, "gather": self.gather}[self.method]
        return self.output(attend(query, key, value).flatten(-2))

    def ring(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Process one block of keys after the other; `weights` and `sums` are scaled by the largest score so far."""
        pair = torch.stack((key, value))
        largest = query.new_full(query.shape[:-1], -torch.inf)
        weights, sums = torch.zeros_like(largest), torch.zeros_like(query)
        for hop in range(dist.get_world_size(self.group)):
            if hop:
                pair = _Hop.apply(pair, self.group)
            scores = torch.einsum("qbhd,kbhd->qbhk", self.compute(query), pair[0]) / query.shape[-1] ** 0.5
            higher = torch.maximum(largest, scores.amax(dim=-1).detach())
            fading, shares = (largest - higher).exp(), (scores - higher.unsqueeze(-1)).exp()
            weights = weights * fading + shares.sum(dim=-1)
            sums = sums * fading.unsqueeze(-1) + torch.einsum("qbhk,kbhd->qbhd", shares, pair[1])
            largest = higher
        return sums / weights.unsqueeze(-1)

    def ulysses(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        ranks = dist.get_world_size(self.group)
        projections = torch.stack((query, key, value))
        by_heads = torch.stack(projections.chunk(ranks, dim=3))  # [ranks, 3, sequence, batch, heads / ranks, size]
        whole = torch.cat(tuple(_Transpose.apply(by_heads, self.group)), dim=1)
        result = torch.stack(_attention(self.compute(whole[0]), whole[1], whole[2]).chunk(ranks))
        return torch.cat(tuple(_Transpose.apply(result, self.group)), dim=2)

    def gather(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        key, value = _Gather.apply(torch.stack((key, value), dim=1), self.group).unbind(dim=1)
        return _attention(self.compute(query), key, value)

    def compute(self, x: Tensor) -> Tensor:
        return sleep(x, forward_s=self.forward_s, backward_s=2 * self.forward_s) if self.forward_s else x


def _attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    scores = torch.einsum("qbhd,kbhd->qbhk", query, key) / query.shape[-1] ** 0.5
    return torch.einsum("qbhk,kbhd->qbhd", scores.softmax(dim=-1), value)


class Layer(nn.Module):
    def __init__(self, attention: Attention) -> None:
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(WIDTH), attention

    def forward(self, x: Tensor) -> Tensor:
        return x + self.attention(self.norm(x))


def main() -> None:
    options = parse_options()
    with job(options) as process:
        torch.manual_seed(0)  # the same parameters on all ranks
        mesh = init_device_mesh(process.device.type, (process.world_size,), mesh_dim_names=("cp",))
        attention = Attention(mesh.get_group(), options.method, SLEEP_S if options.sleep_compute else 0.0)
        layer = Layer(attention).to(process.device)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)
        batches = torch.Generator().manual_seed(1)

        @tracekit.probe(path=options.out, steps=4)
        def train_step() -> Tensor:
            optimizer.zero_grad(set_to_none=True)
            whole = torch.randn(SEQUENCE, BATCH, WIDTH, generator=batches).to(process.device)
            x = whole.chunk(process.world_size)[process.rank]
            loss = nn.functional.mse_loss(layer(x), torch.roll(x, 1, dims=-1))
            loss.backward()
            for parameter in layer.parameters():
                dist.all_reduce(parameter.grad, group=mesh.get_group())
                parameter.grad /= process.world_size
            optimizer.step()
            return loss.detach()

        train(train_step, options.steps, prints=process.rank == 0)


def parse_options() -> argparse.Namespace:
    parser = training_options("Context-parallel training.", out="runs/context")
    parser.add_argument(
        "--method", choices=("ring", "ulysses", "gather"), default="ring", help="how keys are exchanged"
    )
    parser.add_argument("--sleep-compute", action="store_true", help="attention sleeps as well")
    return parser.parse_args()


if __name__ == "__main__":
    main()
