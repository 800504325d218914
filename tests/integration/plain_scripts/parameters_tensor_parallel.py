"""Tensor parallelism with a list of column shards, forward only, as in lectures: no module, no optimizer."""

import math
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import tracekit

BATCH, WIDTH, LAYERS = 32, 128, 4


def get_init_params(inputs, outputs):
    torch.manual_seed(0)
    return nn.Parameter(torch.randn(inputs, outputs) / math.sqrt(outputs))


def tensor_parallelism_main(data):
    world_size = dist.get_world_size()
    local_width = WIDTH // world_size
    params = [get_init_params(WIDTH, local_width) for _ in range(LAYERS)]

    torch.set_grad_enabled(sys.argv[2] == "grad")
    with tracekit.probe(sys.argv[1]) as probe:
        for _ in range(8):
            probe.step()
            x = data
            for i in range(LAYERS):
                x = F.gelu(x @ params[i])
                activations = [torch.empty(BATCH, local_width) for _ in range(world_size)]
                dist.all_gather(tensor_list=activations, tensor=x, async_op=False)
                x = torch.cat(activations, dim=1)
    return x


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    tensor_parallelism_main(torch.randn(BATCH, WIDTH))
    dist.barrier()
    dist.destroy_process_group()
