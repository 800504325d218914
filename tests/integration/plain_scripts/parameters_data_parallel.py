"""Data parallelism with a list of parameters, as in lectures: no module, an all-reduce for each gradient."""

import math
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import tracekit

WIDTH, LAYERS, BATCH = 512, 6, 32


class Slow(torch.autograd.Function):
    """The identity, as slow as a large layer: 4 ms forward and 8 ms backward."""

    @staticmethod
    def forward(ctx, x):
        time.sleep(0.004)
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        time.sleep(0.008)
        return grad


def get_init_params(inputs, outputs):
    torch.manual_seed(0)
    return nn.Parameter(torch.randn(inputs, outputs) / math.sqrt(outputs))


def average(gradient):
    if sys.argv[2] == "avg":
        dist.all_reduce(tensor=gradient, op=dist.ReduceOp.AVG, async_op=False)
    else:
        dist.all_reduce(tensor=gradient, op=dist.ReduceOp.SUM, async_op=False)
        gradient /= dist.get_world_size()


def data_parallelism_main(data, steps):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    local_batch_size = data.size(0) // world_size
    data = data[rank * local_batch_size : (rank + 1) * local_batch_size]
    params = [get_init_params(WIDTH, WIDTH) for _ in range(LAYERS)]
    optimizer = torch.optim.AdamW(params, lr=1e-3)

    @tracekit.probe(sys.argv[1])
    def train_step():
        optimizer.zero_grad()
        x = data
        for param in params:
            x = F.gelu(Slow.apply(x @ param))
        loss = x.square().mean()
        loss.backward()
        for param in params:
            average(param.grad)
        optimizer.step()
        return loss

    for _ in range(steps):
        loss = train_step()
    print(f"rank {rank}: loss {loss.item():.4f}")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    data_parallelism_main(torch.randn(BATCH, WIDTH), steps=8)
    dist.barrier()
    dist.destroy_process_group()
