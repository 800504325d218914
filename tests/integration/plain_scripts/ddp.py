"""DistributedDataParallel in a minimal script."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import tracekit

dist.init_process_group("gloo")
model = DDP(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)))
optimizer = torch.optim.AdamW(model.parameters())


@tracekit.probe(sys.argv[1])
def train_step(batch, labels):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(batch), labels)
    loss.backward()
    optimizer.step()
    return loss


for _ in range(8):
    loss = train_step(torch.randn(8, 16), torch.randint(4, (8,))).detach()
    dist.all_reduce(loss)
dist.barrier()
dist.destroy_process_group()
