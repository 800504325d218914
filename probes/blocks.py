"""A small residual network and two ways of tensor parallelism for it: DTensor's, and collectives written by hand."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from sleeping import sleep


class Block(nn.Module):
    """x + down(relu(up(norm(x)))); sleeps `forward_s` in the middle, and twice that in the backward pass."""

    def __init__(self, width: int, forward_s: float = 0.0) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.forward_s = forward_s

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.up(self.norm(x)))
        if self.forward_s:
            hidden = sleep(hidden, forward_s=self.forward_s, backward_s=2 * self.forward_s)
        return x + self.down(hidden)


class Network(nn.Module):
    """Blocks, a norm and a head; the backward pass takes `delay_s` longer."""

    def __init__(self, width: int, layers: int, classes: int, forward_s: float = 0.0, delay_s: float = 0.0) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(width, forward_s) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)
        self.delay_s = delay_s

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        if self.delay_s:
            x = sleep(x, backward_s=self.delay_s)
        return self.head(self.norm(x))


def shard_with_dtensor(network: nn.Module, mesh: DeviceMesh, *, sequence_parallel: bool = False) -> None:
    """Shard `up` and `head` by columns and `down` by rows, over a mesh of one dimension.

    With `sequence_parallel`, activations [batch, sequence, width] outside of the linear layers are sharded by sequence,
    inputs included.
    """
    between = Shard(1) if sequence_parallel else Replicate()
    for block in (module for module in network.modules() if isinstance(module, Block)):
        plan: dict[str, Any] = {"up": ColwiseParallel(input_layouts=between)}
        plan["down"] = RowwiseParallel(output_layouts=between)
        if sequence_parallel:
            plan["norm"] = SequenceParallel()
        parallelize_module(block, mesh, plan)
    plan = {"head": ColwiseParallel(input_layouts=between, output_layouts=Replicate())}
    if sequence_parallel:
        plan["norm"] = SequenceParallel()
    if hasattr(network, "head"):
        parallelize_module(network, mesh, plan)


def shard_by_hand(network: nn.Module, group: dist.ProcessGroup, *, sequence_parallel: bool = False) -> None:
    """Shard the same way over a process group, with a collective in each autograd function.

    With `sequence_parallel` the gradients of `parameters_of_sequence` are to be summed after the backward pass.
    """
    for block in (module for module in network.modules() if isinstance(module, Block)):
        block.up = ColumnLinear(block.up, group, gather=False, by_sequence=sequence_parallel)
        block.down = RowLinear(block.down, group, by_sequence=sequence_parallel)
    if hasattr(network, "head"):
        network.head = ColumnLinear(network.head, group, gather=True, by_sequence=sequence_parallel)


def parameters_of_sequence(network: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that each rank applies to its own part of the sequence."""
    of_norms = [p for module in network.modules() if isinstance(module, nn.LayerNorm) for p in module.parameters()]
    return of_norms + [module.bias for module in network.modules() if isinstance(module, RowLinear)]


class ColumnLinear(nn.Module):
    """This rank's output columns of a linear layer; `gather` concatenates those of all ranks.

    `by_sequence`: the input is this rank's part of the sequence; the output is of all parts.
    """

    def __init__(self, whole: nn.Linear, group: dist.ProcessGroup, *, gather: bool, by_sequence: bool) -> None:
        super().__init__()
        part, parts = dist.get_rank(group), dist.get_world_size(group)
        self.weight = nn.Parameter(whole.weight.detach().chunk(parts)[part].clone())
        self.bias = nn.Parameter(whole.bias.detach().chunk(parts)[part].clone())
        self.group, self.gather, self.by_sequence = group, gather, by_sequence

    def forward(self, x: Tensor) -> Tensor:
        x = (_GatherSequence if self.by_sequence else _ReduceGradient).apply(x, self.group)
        columns = nn.functional.linear(x, self.weight, self.bias)
        return _GatherColumns.apply(columns, self.group) if self.gather else columns


class RowLinear(nn.Module):
    """This rank's input columns of a linear layer; the partial outputs of all ranks are summed.

    `by_sequence`: each rank gets its part of the sequence of the sum.
    """

    def __init__(self, whole: nn.Linear, group: dist.ProcessGroup, *, by_sequence: bool) -> None:
        super().__init__()
        part, parts = dist.get_rank(group), dist.get_world_size(group)
        self.weight = nn.Parameter(whole.weight.detach().chunk(parts, dim=1)[part].clone())
        self.bias = nn.Parameter(whole.bias.detach().clone())
        self.group, self.by_sequence = group, by_sequence

    def forward(self, x: Tensor) -> Tensor:
        reduce = _ScatterSequence if self.by_sequence else _Reduce
        return reduce.apply(nn.functional.linear(x, self.weight), self.group) + self.bias


class _ReduceGradient(torch.autograd.Function):
    """The identity; its gradient is the sum over the group."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        gradient = gradient.clone()
        dist.all_reduce(gradient, group=ctx.group)
        return gradient, None


class _Reduce(torch.autograd.Function):
    """The sum over the group; every rank has its gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


class _GatherSequence(torch.autograd.Function):
    """The sequences [batch, sequence, width] of all ranks, concatenated; gradients are summed and scattered."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return _gathered(x, group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _scattered(gradient, ctx.group), None


class _ScatterSequence(torch.autograd.Function):
    """This rank's part of the sum over the group; gradients are gathered."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return _scattered(x, group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _gathered(gradient, ctx.group), None


def _gathered(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, x.contiguous(), group=group)
    return torch.cat(parts, dim=1)


def _scattered(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    parts = [part.contiguous() for part in x.chunk(dist.get_world_size(group), dim=1)]
    mine = torch.empty_like(parts[0])
    dist.reduce_scatter(mine, parts, group=group)
    return mine


class _GatherColumns(torch.autograd.Function):
    """The columns of all ranks, concatenated; a rank's gradient is its part of the whole gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.part, ctx.parts = dist.get_rank(group), dist.get_world_size(group)
        columns = [torch.empty_like(x) for _ in range(ctx.parts)]
        dist.all_gather(columns, x.contiguous(), group=group)
        return torch.cat(columns, dim=-1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient.chunk(ctx.parts, dim=-1)[ctx.part].contiguous(), None
