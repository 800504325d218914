"""FSDP2: parameters are gathered for each layer and gradients are scattered, on streams of their own.

Order, streams and labels are those of torch/distributed/fsdp/_fully_shard (`_fsdp_param_group.py`,
`_fsdp_collectives.py`). An all-gather waits for the copy of its shard, not for compute. A reduce-scatter waits for the
compute that was launched before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.gpu_jobs.engine import Kernel
from benchmarks.gpu_jobs.gpu import Synchronize
from benchmarks.gpu_jobs.rank import BYTES_PER_US, Rank
from benchmarks.gpu_jobs.strategies.model import (
    Loop,
    autograd_node,
    backward_layer,
    end_of_step,
    forward_layer,
    load_batch,
    optimizer_step,
    steps,
)

COPY_US = 4.0
BYTES_PER_ELEMENT = 4


@dataclass(frozen=True, kw_only=True)
class Unit:
    """A module that is sharded as one: what it is called, its parameters, and its times for one microbatch."""

    name: str
    size_bytes: int
    gather_us: float
    forward_us: float


def train(rank: Rank) -> Loop:
    spec = rank.spec
    gathered_bytes = round(spec.exchange_us * BYTES_PER_US)
    units = [
        Unit(name=f"layers.{i}", size_bytes=gathered_bytes, gather_us=spec.exchange_us, forward_us=spec.layer_us)
        for i in range(spec.layers)
    ]
    if spec.prefetch is None:
        yield from train_units(rank, units, backward_ahead=1, waits=False)  # as FSDP2 does without being told
    else:
        yield from train_units(rank, units, forward_ahead=spec.prefetch, backward_ahead=spec.prefetch, waits=True)


def train_units(
    rank: Rank,
    units: Sequence[Unit],
    *,
    forward_ahead: int = 0,
    backward_ahead: int = 0,
    waits: bool,
    reshards: bool = True,
) -> Loop:
    """Train these units. `forward_ahead` and `backward_ahead` are how many are gathered before they are needed.

    With `waits` the host waits for its device after each unit. Otherwise it runs ahead, and gathers early by itself.
    Parameters are freed after the forward pass if it `reshards`.
    """
    for _ in steps(rank):
        sharded = Sharded(rank)
        load_batch(rank)
        with rank.label("FSDP::root_pre_forward"):
            sharded.wait_for_parameters()
        for place, unit in enumerate(units):
            with rank.label(f"FSDP::pre_forward ({unit.name})"):
                sharded.all_gather(unit)
                sharded.use(unit)
                sharded.prefetch("forward", units[place + 1 :][:forward_ahead])
            yield forward_layer(rank, unit, unit.forward_us / rank.spec.layer_us)
            with rank.label(f"FSDP::post_forward ({unit.name})"):
                rank.spend(1)
            if waits:
                yield Synchronize(rank.compute_stream.event())
        if reshards:
            sharded.gathered.clear()
        backward = units[::-1]
        for place, unit in enumerate(backward):
            with autograd_node(rank, "AddmmBackward0"), rank.label(f"FSDP::pre_backward ({unit.name})"):
                if reshards:
                    sharded.all_gather(unit)
                    sharded.use(unit)
                    sharded.prefetch("backward", backward[place + 1 :][:backward_ahead])
            yield backward_layer(rank, unit, unit.forward_us / rank.spec.layer_us)
            with autograd_node(rank, "RegisterPostBackwardFunctionBackward"):
                sharded.reduce(unit)
            if waits:
                yield Synchronize(rank.compute_stream.event())
        with rank.autograd(), rank.label("FSDP::root_post_backward_callback"):
            rank.wait(*sharded.reductions)
        optimizer_step(rank)
        yield end_of_step(rank)


@dataclass
class Sharded:
    """Gathers and reductions of one step. Both are of one communicator."""

    rank: Rank
    gathered: dict[Unit, Kernel] = field(default_factory=dict)
    reductions: list[Kernel] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.group = self.rank.groups["dp"]
        self.copy_in = self.rank.stream_of("all_gather_copy_in")
        self.all_gathers = self.rank.stream_of("all_gather")
        self.reduce_scatters = self.rank.stream_of("reduce_scatter")

    def wait_for_parameters(self) -> None:
        """Let all-gathers wait for the optimizer of the step before."""
        for stream in (self.copy_in, self.all_gathers):
            self.rank.wait_stream(stream, self.rank.compute_stream)

    def all_gather(self, unit: Unit) -> None:
        """Gather a unit's parameters, unless they were gathered ahead."""
        if unit in self.gathered:
            return
        rank = self.rank
        with rank.label(f"FSDP::all_gather ({unit.name})"):
            with rank.on_stream(self.copy_in):
                copy(rank, "fsdp::all_gather_copy_in", "aten::_foreach_copy_")
            rank.wait_stream(self.all_gathers, self.copy_in)
            with rank.on_stream(self.all_gathers):
                self.gathered[unit] = self.collective("all_gather", unit)

    def use(self, unit: Unit) -> None:
        """Let compute wait for a unit's parameters and copy them out of the gathered buffer."""
        rank = self.rank
        with rank.label(f"FSDP::all_gather_copy_out ({unit.name})"):
            rank.wait(self.gathered[unit])
            copy(rank, "fsdp::split_with_sizes_copy", "aten::split_with_sizes_copy")

    def prefetch(self, phase: str, units: Sequence[Unit]) -> None:
        for unit in units:
            with self.rank.label(f"FSDP::{phase}_prefetch for {unit.name}"):
                self.all_gather(unit)

    def reduce(self, unit: Unit) -> None:
        """Scatter a unit's gradients. Compute waits for the reduction before, whose buffer is freed."""
        rank = self.rank
        with rank.label(f"FSDP::post_backward_reduce ({unit.name})"):
            if self.reductions:
                rank.wait(self.reductions[-1])
            copy(rank, "fsdp::chunk_cat", "aten::_chunk_cat")
            rank.wait_stream(self.reduce_scatters, rank.compute_stream)
            with rank.on_stream(self.reduce_scatters):
                self.reductions.append(self.collective("reduce_scatter", unit))

    def collective(self, kind: str, unit: Unit) -> Kernel:
        return self.rank.collective(
            self.group, kind, unit.gather_us, blocking=True, elements=unit.size_bytes // BYTES_PER_ELEMENT
        )


def copy(rank: Rank, operator: str, inner: str) -> None:
    """Copy between parameters and the buffer of a collective: an operator of FSDP that calls one of ATen."""
    kernel = f"void at::native::(anonymous namespace)::{inner.removeprefix('aten::').strip('_')}_kernel<float>(int)"
    with rank.operator(operator):
        rank.compute(kernel, COPY_US, inner)
