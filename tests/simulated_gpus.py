"""Simulated traces of GPU ranks that train together.

    cluster = GpuCluster(8)
    for _ in cluster.steps(5):
        cluster.compute(0, 400)
        cluster.collective((0, 1), 100)
    cluster.write(folder)

Times are microseconds. A device runs what its host launches, in order. A host launches faster than the device computes
and runs ahead of it; the two are synchronised at the end of each step. A collective starts on a rank when its device
reaches it. It ends `for_us` after the last rank's start, on each rank up to a microsecond later.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.builders import TraceBuilder, write_run

__all__ = ["GpuCluster"]

_LAUNCH_US = 5.0
_LATENCY_US = 4.0  # from launch to start
_EVENT_US = 2.0  # from the end of a kernel to the start of one on another stream that waits for it


@dataclass
class _Gpu:
    trace: TraceBuilder
    host_us: float = 0.0
    device_us: float = 0.0
    streams_us: dict[int, float] = field(default_factory=dict)  # when each stream is free, except the compute stream

    def launch(self) -> tuple[float, float]:
        """Return when the host launches a kernel, and when the device can start it."""
        launched_us = self.host_us
        self.host_us += _LAUNCH_US
        return launched_us, max(launched_us + _LATENCY_US, self.device_us)


class GpuCluster:
    """Simulated ranks. `labels` are rank numbers to write them with, instead of 0, 1, ..."""

    def __init__(self, ranks: int, *, per_host: int = 4, seed: int = 0, labels: Sequence[int] = ()) -> None:
        self.labels = labels or range(ranks)
        self.gpus = [
            _Gpu(TraceBuilder(label, ranks, host=f"node{place // per_host}")) for place, label in enumerate(self.labels)
        ]
        self._rng = random.Random(seed)
        self._sequence: Counter[tuple[int, ...]] = Counter()

    def steps(self, count: int) -> Iterator[int]:
        for number in range(count):
            begun_us = [gpu.host_us for gpu in self.gpus]
            yield number
            for gpu, at_us in zip(self.gpus, begun_us, strict=True):
                gpu.host_us = max(gpu.host_us, gpu.device_us, *gpu.streams_us.values())
                gpu.trace.step(number, at_us, gpu.host_us - at_us)

    def hold_up(self, rank: int, for_us: float) -> None:
        """Let the host wait for its device, as `.item()` does, and continue `for_us` later."""
        gpu = self.gpus[rank]
        gpu.host_us = max(gpu.host_us, gpu.device_us) + for_us

    def compute(self, rank: int, for_us: float, name: str = "gemm") -> None:
        gpu = self.gpus[rank]
        launched_us, start_us = gpu.launch()
        gpu.trace.kernel(name, start_us, for_us, launched_at=launched_us)
        gpu.device_us = start_us + for_us

    def collective(
        self, members: Sequence[int], for_us: float, *, elements: int = 1 << 20, description: str | None = None
    ) -> None:
        launched = [self.gpus[rank].launch() for rank in members]
        ends_us = self._meet(members, launched, for_us, elements=elements, description=description)
        for rank, end_us in ends_us.items():
            self.gpus[rank].device_us = end_us

    def collective_on_stream(
        self,
        members: Sequence[int],
        for_us: float,
        *,
        stream: int,
        after: int | None = None,
        kind: str = "all_reduce",
        elements: int = 1 << 20,
        description: str | None = None,
    ) -> None:
        """Run a collective on another stream, while the device continues to compute.

        It waits for the compute that was launched so far, or for the stream `after`.
        """
        launched = []
        for rank in members:
            gpu = self.gpus[rank]
            launched_us, _ = gpu.launch()
            ready_us = gpu.device_us if after is None else gpu.streams_us.get(after, 0.0)
            launched.append((launched_us, max(launched_us, ready_us, gpu.streams_us.get(stream, 0.0)) + _EVENT_US))
        ends_us = self._meet(
            members, launched, for_us, stream=stream, kind=kind, elements=elements, description=description
        )
        for rank, end_us in ends_us.items():
            self.gpus[rank].streams_us[stream] = end_us

    def wait_for(self, rank: int, until_us: float) -> None:
        """Let further compute of the device wait until then, as for an event of another stream."""
        gpu = self.gpus[rank]
        gpu.device_us = max(gpu.device_us, until_us + _EVENT_US)

    def _meet(
        self,
        members: Sequence[int],
        launched: Sequence[tuple[float, float]],
        for_us: float,
        *,
        stream: int = 20,
        kind: str = "all_reduce",
        elements: int = 1 << 20,
        description: str | None = None,
    ) -> dict[int, float]:
        """Write a collective; return when it ends on each rank. `launched`: when each launches it and can start it."""
        members = tuple(members)
        self._sequence[members] += 1
        group = sorted(self.labels[member] for member in members)
        last_us = max(start_us for _, start_us in launched)
        ends_us = {member: last_us + for_us + self._rng.uniform(0.0, 1.0) for member in members}
        for rank, (launched_us, start_us) in zip(members, launched, strict=True):
            self.gpus[rank].trace.nccl(
                kind,
                start_us,
                ends_us[rank] - start_us,
                stream=stream,
                launched_at=launched_us,
                elements=elements,
                group=group,
                description=description or f"group {group}",
                Seq=self._sequence[members],
            )
        return ends_us

    def write(self, folder: Path, *, measured: bool = False) -> Path:
        """Write a trace a rank. With `measured` the traces hold clock samples that say that the clocks agree."""
        for gpu in self.gpus if measured else ():
            gpu.trace.capture(clock=[(0, 0, 0), (gpu.host_us, 0, 0)])
        return write_run(folder, (gpu.trace for gpu in self.gpus))
