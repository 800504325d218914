"""Simulated traces of GPU ranks that train with FSDP2. Labels and order of launches are those of torch.

    blocks = [Unit(f"blocks.{i}", size_bytes=8 << 20, gather_us=300, forward_us=500) for i in range(6)]
    cluster = train(blocks, steps=5, ahead=1)
    cluster.write(folder)

Each unit copies its shard on a separate stream, gathers it, copies it out of the gathered buffer and computes, twice as
long backward. Then its gradients are reduced. All-gathers and reductions share a stream, as they share a communicator.

`ahead` is the number of units that explicit prefetching gathers early. With `synced` the host waits for its device
after each unit, as `.item()` does, so that without prefetching an all-gather is launched only when it is needed.
Otherwise the host runs ahead and launches all-gathers early.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.simulated_gpus import GpuCluster

__all__ = ["Unit", "train"]

_STREAM = 20
_COPY_STREAM = 21
_COPY_IN_US = 4.0
_COPY_OUT_US = 4.0
_OPTIMIZER_US = 50.0
_PYTHON_US = 1.0  # from the beginning of a label to the first launch in it


@dataclass(frozen=True, kw_only=True)
class Unit:
    name: str
    size_bytes: int
    gather_us: float
    forward_us: float


def train(units: Sequence[Unit], *, ranks: int = 2, steps: int = 5, ahead: int = 0, synced: bool = True) -> GpuCluster:
    cluster = GpuCluster(ranks)
    for _ in cluster.steps(steps):
        _one_pass(cluster, units, "forward", ahead, synced)
        _one_pass(cluster, units[::-1], "backward", ahead, synced)
        for rank in range(ranks):
            _with_label(
                cluster, rank, "Optimizer.step#SGD.step", lambda rank=rank: cluster.compute(rank, _OPTIMIZER_US)
            )
    return cluster


def _one_pass(cluster: GpuCluster, units: Sequence[Unit], phase: str, ahead: int, synced: bool) -> None:
    ranks = range(len(cluster.gpus))
    gathered: dict[str, list[float]] = {}
    for place, unit in enumerate(units):
        for rank in ranks:
            gpu = cluster.gpus[rank]
            if phase == "backward":
                gpu.trace.backward("MmBackward0", gpu.host_us, 1)
        _gather(cluster, unit, gathered, f"FSDP::pre_{phase} ({unit.name})")
        for rank in ranks:
            cluster.wait_for(rank, gathered[unit.name][rank])
            copy_out = f"FSDP::all_gather_copy_out ({unit.name})"
            _with_label(cluster, rank, copy_out, lambda rank=rank: cluster.compute(rank, _COPY_OUT_US, "split"))
        for later in units[place + 1 : place + 1 + ahead]:
            _gather(cluster, later, gathered, f"FSDP::{phase}_prefetch for {later.name}")
        for rank in ranks:
            cluster.compute(rank, unit.forward_us * (2 if phase == "backward" else 1))
        if phase == "backward":
            _on_all_ranks(
                cluster, f"FSDP::post_backward_reduce ({unit.name})", lambda unit=unit: _reduce(cluster, unit)
            )
        if synced:
            for rank in ranks:
                cluster.hold_up(rank, 0)


def _gather(cluster: GpuCluster, unit: Unit, gathered: dict[str, list[float]], around: str) -> None:
    if unit.name in gathered:
        return

    def launch() -> None:
        members = range(len(cluster.gpus))
        for gpu in cluster.gpus:
            launched_us, _ = gpu.launch()
            start_us = max(launched_us + _COPY_IN_US, gpu.streams_us.get(_STREAM, 0.0))
            gpu.trace.kernel("copy_in", start_us, _COPY_IN_US, stream=_COPY_STREAM, launched_at=launched_us)
            gpu.streams_us[_STREAM] = start_us + _COPY_IN_US
        # It waits for no compute: the shards were ready when the step began.
        cluster.collective_on_stream(
            members, unit.gather_us, stream=_STREAM, after=_STREAM, kind="all_gather", elements=unit.size_bytes // 4
        )
        gathered[unit.name] = [gpu.streams_us[_STREAM] for gpu in cluster.gpus]

    _on_all_ranks(cluster, around, lambda: _on_all_ranks(cluster, f"FSDP::all_gather ({unit.name})", launch))


def _reduce(cluster: GpuCluster, unit: Unit) -> None:
    members = range(len(cluster.gpus))
    cluster.collective_on_stream(
        members, unit.gather_us, stream=_STREAM, kind="reduce_scatter", elements=unit.size_bytes // 4
    )


def _on_all_ranks(cluster: GpuCluster, label: str, do: Callable[[], None]) -> None:
    """Call `do`, which launches on all ranks, within a label on each of them."""
    begun_us = [gpu.host_us for gpu in cluster.gpus]
    for gpu in cluster.gpus:
        gpu.host_us += _PYTHON_US
    do()
    for gpu, at_us in zip(cluster.gpus, begun_us, strict=True):
        gpu.trace.label(label, at_us, gpu.host_us - at_us)


def _with_label(cluster: GpuCluster, rank: int, label: str, do: Callable[[], None]) -> None:
    gpu = cluster.gpus[rank]
    at_us = gpu.host_us
    do()
    gpu.trace.label(label, at_us, gpu.host_us - at_us)
