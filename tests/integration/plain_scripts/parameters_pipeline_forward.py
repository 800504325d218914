"""A pipeline with lists of parameters, forward only, as in lectures: recv, layers, send for each micro-batch.

Without a barrier a rank goes on with the next step while those behind it are in this one.
"""

import math
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
        time.sleep(0.02)
        return x.view_as(x)


def get_init_params(inputs, outputs):
    torch.manual_seed(0)
    return nn.Parameter(torch.randn(inputs, outputs) / math.sqrt(outputs))


def pipeline_parallelism_main(data, num_micro_batches):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    local_params = [get_init_params(WIDTH, WIDTH) for _ in range(LAYERS // world_size)]

    @tracekit.probe(sys.argv[1])
    def step():
        micro_batches = list(data.chunk(chunks=num_micro_batches, dim=0))
        if rank != 0:
            micro_batches = [torch.empty_like(x) for x in micro_batches]
        for x in micro_batches:
            if rank - 1 >= 0:
                dist.recv(tensor=x, src=rank - 1)
            for param in local_params:
                x = F.gelu(Slow.apply(x @ param))
            if rank + 1 < world_size:
                dist.send(tensor=x, dst=rank + 1)
        if sys.argv[2] == "barrier":
            dist.barrier()

    for _ in range(8):
        step()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    pipeline_parallelism_main(torch.randn(BATCH, WIDTH), MICRO_BATCHES)
    dist.barrier()
    dist.destroy_process_group()
