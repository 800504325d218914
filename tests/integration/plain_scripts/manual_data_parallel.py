"""Averaging gradients by hand, as in PyTorch's tutorial "Writing distributed applications"."""

import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import tracekit


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, kernel_size=5)
        self.conv2 = nn.Conv2d(4, 8, kernel_size=5)
        self.fc1 = nn.Linear(128, 50)
        self.fc2 = nn.Linear(50, 10)

    def forward(self, x):
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        x = F.relu(self.fc1(x.view(-1, 128)))
        return F.log_softmax(self.fc2(x), dim=1)


def average_gradients(model):
    size = float(dist.get_world_size())
    for param in model.parameters():
        dist.all_reduce(param.grad.data, op=dist.ReduceOp.SUM)
        param.grad.data /= size


@tracekit.probe(sys.argv[1])
def train_step(model, optimizer, data, target):
    optimizer.zero_grad()
    loss = F.nll_loss(model(data), target)
    loss.backward()
    average_gradients(model)
    optimizer.step()
    return loss


def run(rank, size):
    torch.manual_seed(1234)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5)
    for _ in range(8):
        data, target = torch.randn(16, 1, 28, 28), torch.randint(10, (16,))
        loss = train_step(model, optimizer, data, target).detach()
        dist.all_reduce(loss)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    run(dist.get_rank(), dist.get_world_size())
    dist.barrier()
    dist.destroy_process_group()
