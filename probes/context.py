"""Context parallelism by collectives: attention over a sequence that is split over all ranks, in one of two ways.

    torchrun --standalone --nproc-per-node 2 probes/context.py --method ulysses --sleep-compute

* `--method ulysses`: an all-to-all turns shards of the sequence into shards of heads, and another one turns the result
  back.
* `--method gather`: keys and values of all ranks are gathered; their gradients are reduced and scattered.

Ring attention, the third way, is ring_attention.py. Expected findings:

* Strategy cp, with a group of all ranks. The collectives are listed under module `attention`, and at most 2 % of them
  overlaps: the next operator needs what they bring.
* `--slow-rank 1 --delay-ms 20`: "Straggler: rank 1 computes ... longer than its peer", about 20 ms a step. It
  waits in the first collective of `attention`.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from attention import Attention, attention_options, train_attention


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


class Ulysses(Attention):
    """Each rank attends with some of the heads, to the whole sequence."""

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        ranks = dist.get_world_size(self.group)
        projections = torch.stack((query, key, value))
        by_heads = torch.stack(projections.chunk(ranks, dim=3))  # [ranks, 3, sequence, batch, heads / ranks, size]
        whole = torch.cat(tuple(_Transpose.apply(by_heads, self.group)), dim=1)
        result = torch.stack(_attention(self.compute(whole[0]), whole[1], whole[2]).chunk(ranks))
        return torch.cat(tuple(_Transpose.apply(result, self.group)), dim=2)


class Gather(Attention):
    """Each rank attends from its part of the sequence, to gathered keys."""

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        key, value = _Gather.apply(torch.stack((key, value), dim=1), self.group).unbind(dim=1)
        return _attention(self.compute(query), key, value)


def _attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    scores = torch.einsum("qbhd,kbhd->qbhk", query, key) / query.shape[-1] ** 0.5
    return torch.einsum("qbhk,kbhd->qbhd", scores.softmax(dim=-1), value)


METHODS = {"ulysses": Ulysses, "gather": Gather}


def main() -> None:
    options = parse_options()
    train_attention(options, METHODS[options.method])


def parse_options() -> argparse.Namespace:
    parser = attention_options("Context-parallel training.", out="runs/context")
    parser.add_argument("--method", choices=METHODS, default="ulysses", help="how keys are exchanged")
    return parser.parse_args()


if __name__ == "__main__":
    main()
