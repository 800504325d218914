"""Data parallelism in a plain class with a list of tensors: updates by hand, in a loop without a step function."""

import sys
from itertools import pairwise

import torch
import torch.distributed as dist

import tracekit

LR = 0.05


class Network:
    def __init__(self, widths):
        self.params = []
        for inputs, outputs in pairwise(widths):
            weight = torch.randn(inputs, outputs) / inputs**0.5
            self.params += [weight.requires_grad_(), torch.zeros(outputs, requires_grad=True)]

    def __call__(self, x):
        for weight, bias in zip(self.params[::2], self.params[1::2], strict=True):
            x = torch.relu(x @ weight + bias)
        return x


dist.init_process_group("gloo")
torch.manual_seed(0)
network = Network([64, 128, 128, 16])
torch.manual_seed(dist.get_rank())

with tracekit.probe(sys.argv[1]) as probe:
    for _ in range(8):
        probe.step()
        loss = network(torch.randn(32, 64)).square().mean()
        loss.backward()
        with torch.no_grad():
            for p in network.params:
                dist.all_reduce(p.grad)
                p -= LR * p.grad / dist.get_world_size()
                p.grad = None
dist.barrier()
dist.destroy_process_group()
