"""DistributedDataParallel over a device mesh without names of dimensions."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel as DDP

import tracekit


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = DDP(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)), device_mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    @tracekit.probe(sys.argv[1])
    def train_step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    for _ in range(8):
        train_step(torch.randn(8, 16), torch.randn(8, 4))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
