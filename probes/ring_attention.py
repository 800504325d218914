"""Ring attention: context parallelism in which keys and values pass from rank to rank, by send and receive.

    torchrun --standalone --nproc-per-node 2 probes/ring_attention.py --slow-rank 1 --delay-ms 20 --sleep-compute

Each rank has a part of the sequence. It attends to its own keys, then to those that come from the rank before it, hop
by hop; gradients take the ring in the other direction. Expected findings:

* Strategy cp, with a group of all ranks. Of n ranks each sends n - 1 hops forward and n - 1 backward in a step, and
  every send is matched to its receive.
* At most 2 % of the communication overlaps. Each hop is waited for before the next block is computed, which is what
  this way of writing it costs: a ring can send keys while it computes with them.
* `--slow-rank 1 --delay-ms 20`: "Straggler: rank 1 computes ... longer than its peer", about 20 ms a step. It
  waits for the first hop.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from attention import Attention, attention_options, train_attention


class Hop(torch.autograd.Function):
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


class RingAttention(Attention):
    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Process one block of keys after the other; `weights` and `sums` are scaled by the largest score so far."""
        pair = torch.stack((key, value))
        largest = query.new_full(query.shape[:-1], -torch.inf)
        weights, sums = torch.zeros_like(largest), torch.zeros_like(query)
        for hop in range(dist.get_world_size(self.group)):
            if hop:
                pair = Hop.apply(pair, self.group)
            scores = torch.einsum("qbhd,kbhd->qbhk", self.compute(query), pair[0]) / query.shape[-1] ** 0.5
            higher = torch.maximum(largest, scores.amax(dim=-1).detach())
            fading, shares = (largest - higher).exp(), (scores - higher.unsqueeze(-1)).exp()
            weights = weights * fading + shares.sum(dim=-1)
            sums = sums * fading.unsqueeze(-1) + torch.einsum("qbhk,kbhd->qbhd", shares, pair[1])
            largest = higher
        return sums / weights.unsqueeze(-1)


def main() -> None:
    options = attention_options("Context-parallel training by ring attention.", out="runs/ring_attention").parse_args()
    train_attention(options, RingAttention)


if __name__ == "__main__":
    main()
