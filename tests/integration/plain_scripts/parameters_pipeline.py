"""A pipeline with lists of parameters and backward by hand: gradients of activations go back with send and recv."""

import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import tracekit

BATCH, WIDTH, LAYERS, MICRO_BATCHES = 32, 64, 4, 4


class Slow(torch.autograd.Function):
    """The identity, as slow as a large layer."""

    @staticmethod
    def forward(ctx, x):
        time.sleep(0.015)
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        time.sleep(0.03)
        return grad


def main(schedule):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    first, last = rank == 0, rank == world_size - 1
    torch.manual_seed(rank)
    params = [nn.Parameter(torch.randn(WIDTH, WIDTH) / WIDTH**0.5) for _ in range(LAYERS // world_size)]
    optimizer = torch.optim.SGD(params, lr=0.01)
    shape = (BATCH // MICRO_BATCHES, WIDTH)
    pending, sends = [], []

    def forward(x, target):
        if not first:
            x = torch.empty(shape)
            dist.recv(x, src=rank - 1)
            x.requires_grad_()
        out = x
        for param in params:
            out = F.gelu(Slow.apply(out @ param))
        if last:
            out = F.mse_loss(out, target) / MICRO_BATCHES
        else:
            sends.append(dist.isend(out.detach(), dst=rank + 1))
        pending.append((x, out))

    def backward():
        x, out = pending.pop(0)
        if last:
            out.backward()
        else:
            grad = torch.empty(shape)
            dist.recv(grad, src=rank + 1)
            out.backward(grad)
        if not first:
            sends.append(dist.isend(x.grad, dst=rank - 1))

    @tracekit.probe(sys.argv[1])
    def train_step(data, target):
        batches = list(zip(data.chunk(MICRO_BATCHES), target.chunk(MICRO_BATCHES), strict=True))
        ahead = MICRO_BATCHES if schedule == "gpipe" else min(world_size - rank - 1, MICRO_BATCHES)
        for batch in batches[:ahead]:
            forward(*batch)
        for batch in batches[ahead:]:
            forward(*batch)
            backward()
        while pending:
            backward()
        for work in sends:
            work.wait()
        sends.clear()
        optimizer.step()
        optimizer.zero_grad()

    for _ in range(8):
        train_step(torch.randn(BATCH, WIDTH), torch.randn(BATCH, WIDTH))


if __name__ == "__main__":
    dist.init_process_group("gloo")
    main(schedule=sys.argv[2])
    dist.barrier()
    dist.destroy_process_group()
