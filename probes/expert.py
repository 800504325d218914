"""A mixture of experts, one on each rank: every token goes to one expert and back, by all-to-all with split sizes.

    torchrun --standalone --nproc-per-node 2 probes/expert.py --hot-expert 1 --sleep-compute

Expected findings:

* The strategy is ep. The all-to-alls are listed under module `moe`: in each step three forward (counts, tokens there,
  tokens back) and two backward. At most 2 % of them overlaps, as the next operator needs the tokens.
* `--hot-expert 1`: expert 1 gets three times as many tokens as any other: "the experts of rank 1 receive 3.00 times the
  mean of the others", and "rank 1 computes ... longer than its peer". The peer waits in the all-to-all that brings the
  tokens back (`--sleep-compute`: an expert takes 20 us for a token).
* `--slow-rank 1 --delay-ms 20`: "rank 1 computes ... longer than its peer", with as many tokens.
* `--functional`: the same with functional collectives, which wait only when the tokens are used.
* `--unnamed`: a group without a description instead of a mesh with a name; the uneven splits show that it is for
  experts.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.distributed.device_mesh import init_device_mesh

import tracekit
from job import add_slow_rank, job, planted_delay_s, train, training_options
from sleeping import sleep

WIDTH, TOKENS = 32, 240
ROUTER_BIAS = 100.0


class _Exchange(torch.autograd.Function):
    """Sends rows to their ranks; the gradients come back the same way."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, to_each: list[int], from_each: list[int], group: dist.ProcessGroup) -> Tensor:
        ctx.splits = to_each, from_each, group
        return _exchange(x, to_each, from_each, group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        to_each, from_each, group = ctx.splits
        return _exchange(gradient, from_each, to_each, group), None, None, None


def _exchange(x: Tensor, to_each: list[int], from_each: list[int], group: dist.ProcessGroup) -> Tensor:
    received = x.new_empty((sum(from_each), *x.shape[1:]))
    dist.all_to_all_single(received, x.contiguous(), from_each, to_each, group=group)
    return received


class MixtureOfExperts(nn.Module):
    """Top-1 routing. `hot` biases the router, so that this expert gets three times as many tokens as any other."""

    def __init__(self, group: dist.ProcessGroup, hot: int, functional: bool, token_s: float) -> None:
        super().__init__()
        self.group, self.functional, self.token_s = group, functional, token_s
        experts = dist.get_world_size(group)
        self.router = nn.Linear(WIDTH, experts)
        self.expert = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.ReLU(), nn.Linear(4 * WIDTH, WIDTH))
        places = [*range(experts), *([hot] * 2 if hot >= 0 else [])]
        tilt = nn.functional.one_hot(torch.tensor(places)[torch.arange(TOKENS) % len(places)], experts)
        self.register_buffer("tilt", ROUTER_BIAS * tilt)

    def forward(self, x: Tensor) -> Tensor:
        probabilities, experts_of_tokens = (self.router(x) + self.tilt).softmax(dim=-1).max(dim=-1)
        order = experts_of_tokens.argsort(stable=True)
        to_each = experts_of_tokens.bincount(minlength=self.router.out_features)
        from_each = _exchange(to_each, [1] * len(to_each), [1] * len(to_each), self.group)
        splits = to_each.tolist(), from_each.tolist()
        there = self.send(x[order], *splits)
        if self.token_s:
            taking_s = len(there) * self.token_s
            there = sleep(there, forward_s=taking_s, backward_s=2 * taking_s)
        back = self.send(self.expert(there), splits[1], splits[0])
        return back[order.argsort()] * probabilities.unsqueeze(-1)

    def send(self, x: Tensor, to_each: list[int], from_each: list[int]) -> Tensor:
        if self.functional:
            return all_to_all_single_autograd(x, from_each, to_each, self.group)
        return _Exchange.apply(x, to_each, from_each, self.group)


class Network(nn.Module):
    def __init__(self, moe: MixtureOfExperts) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.moe = moe

    def forward(self, x: Tensor) -> Tensor:
        return x + self.moe(self.norm(x))


def main() -> None:
    options = parse_options()
    with job(options) as process:
        torch.manual_seed(process.rank)
        mesh = (
            init_device_mesh(process.device.type, (process.world_size,), mesh_dim_names=("ep",))
            if not options.unnamed
            else None
        )
        group = dist.new_group() if mesh is None else mesh.get_group()
        token_s = options.sleep_us / 1e6 if options.sleep_compute else 0.0
        moe = MixtureOfExperts(group, options.hot_expert, options.functional, token_s)
        network = Network(moe).to(process.device)
        for parameter in moe.router.parameters():
            dist.broadcast(parameter.data, 0)
        # Experts differ; other parameters are replicated, and their gradients are averaged here.
        replicated = [*network.norm.parameters(), *moe.router.parameters()]
        optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
        delay_s = planted_delay_s(options, process)
        batches = torch.Generator().manual_seed(1 + process.rank)

        @tracekit.probe(path=options.out, steps=options.recorded)
        def train_step() -> Tensor:
            optimizer.zero_grad(set_to_none=True)
            x = torch.randn(TOKENS, WIDTH, generator=batches).to(process.device)
            loss = nn.functional.mse_loss(network(sleep(x, forward_s=delay_s)), torch.roll(x, 1, dims=-1))
            loss.backward()
            for parameter in replicated:
                dist.all_reduce(parameter.grad, op=dist.ReduceOp.SUM)
                parameter.grad /= process.world_size
            optimizer.step()
            return loss.detach()

        train(train_step, options.steps, prints=process.rank == 0)


def parse_options() -> argparse.Namespace:
    parser = training_options("Expert-parallel training with a planted imbalance.", out="runs/expert", recorded=4)
    parser.add_argument("--hot-expert", type=int, default=-1, help="the expert that gets three times the tokens")
    add_slow_rank(parser, "whose forward pass is delayed")
    parser.add_argument("--functional", action="store_true", help="functional collectives")
    parser.add_argument("--unnamed", action="store_true", help="a group without a name")
    parser.add_argument("--sleep-compute", action="store_true", help="experts sleep as well, in proportion to tokens")
    parser.add_argument("--sleep-us", type=float, default=20.0, help="a token's forward; its backward takes twice that")
    return parser.parse_args()


if __name__ == "__main__":
    main()
