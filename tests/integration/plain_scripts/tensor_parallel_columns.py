"""Linear layers whose columns are spread over the ranks, gathered by hand."""

import sys

import torch
import torch.distributed as dist
from torch import nn

import tracekit


class GatherColumns(torch.autograd.Function):
    @staticmethod
    def forward(ctx, shard):
        ctx.width = shard.shape[-1]
        parts = [torch.empty_like(shard) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, shard.contiguous())
        return torch.cat(parts, dim=-1)

    @staticmethod
    def backward(ctx, grad):
        begin = dist.get_rank() * ctx.width
        return grad[..., begin : begin + ctx.width].contiguous()


class CopyToRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        dist.all_reduce(grad)
        return grad


class ColumnParallelLinear(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs // dist.get_world_size())

    def forward(self, x):
        return GatherColumns.apply(self.linear(CopyToRanks.apply(x)))


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = nn.Sequential(ColumnParallelLinear(32, 64), nn.ReLU(), ColumnParallelLinear(64, 32))
optimizer = torch.optim.Adam(model.parameters())


@tracekit.probe(sys.argv[1])
def train_step(x):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss


for step in range(8):
    torch.manual_seed(step)
    loss = train_step(torch.randn(16, 32))
dist.barrier()
dist.destroy_process_group()
