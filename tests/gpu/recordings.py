"""What a workload recorded on a device: its events as the profiler wrote them, and what an analysis makes of them."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks.gpu_jobs.intervals import length, union
from tests.integration.recorded import notes_of, result_of
from tracekit.loading.load import load
from tracekit.report.kernel_list import KernelUse, list_kernels

SPIN = "spin_kernel"
"""A part of the name of the kernel that `torch.cuda._sleep` launches, on CUDA and on ROCm."""

_COPIES = ("gpu_memcpy", "gpu_memset")


@dataclass(frozen=True, kw_only=True)
class DeviceEvent:
    """A kernel or a copy. Times are in ns since the trace's base."""

    name: str
    stream: int
    start_ns: int
    end_ns: int
    is_kernel: bool

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns


def covered_ns(events: Iterable[DeviceEvent]) -> int:
    """Return the time in which at least one of the events ran."""
    return length(union((event.start_ns, event.end_ns) for event in events))


@dataclass(frozen=True)
class DeviceRecording:
    """A folder of recordings. `facts` are what the workload itself knows, such as how often it replayed a graph."""

    out: Path
    facts: dict[str, Any]

    @cached_property
    def trace(self) -> dict[str, Any]:
        """The only trace, or that of rank 0. Times are decimals, which are exact."""
        files = sorted(self.out.rglob("rank-000000.json.gz"))
        assert len(files) == 1, files
        trace: dict[str, Any] = json.loads(gzip.decompress(files[0].read_bytes()), parse_float=Decimal)
        return trace

    @cached_property
    def device_events(self) -> list[DeviceEvent]:
        found = [event for event in self.trace["traceEvents"] if event.get("cat") in ("kernel", *_COPIES)]
        return sorted(map(_device_event, found), key=lambda event: event.start_ns)

    @property
    def kernels(self) -> list[DeviceEvent]:
        return [event for event in self.device_events if event.is_kernel]

    @property
    def copies(self) -> list[DeviceEvent]:
        return [event for event in self.device_events if not event.is_kernel]

    @property
    def spins(self) -> list[DeviceEvent]:
        return [event for event in self.kernels if SPIN in event.name]

    def calls(self, *names: str) -> int:
        """Return how often the host called any of these functions, in any version of their interface."""
        pattern = re.compile(rf"(?:{'|'.join(names)})(?:_v\d+)?(?:_ptsz)?")
        return sum(pattern.fullmatch(event.get("name", "")) is not None for event in self.trace["traceEvents"])

    @property
    def steps(self) -> int:
        """The number of steps that the capture recorded."""
        return len(self.trace["tracekit"]["steps"])

    @cached_property
    def result(self) -> dict[str, Any]:
        """What `tracekit analyze --json` says of all steps."""
        return result_of(self.out)

    @property
    def uses(self) -> list[KernelUse]:
        """What `tracekit info --kernels` lists."""
        return list_kernels(load(self.out))

    def idle_ns(self, rank: int = 0) -> dict[str, int]:
        """Return the idle time of a rank by cause."""
        return {row["cause"]: row["total_ns"] for row in self.result["idle_causes"] if row["rank"] == rank}

    def require_whole(self) -> dict[str, Any]:
        """Check that no record is lost and every step adds up, and return the row of rank 0."""
        result = self.result
        notes = notes_of(result, "lost-device-records", "capture")
        (row,) = [row for row in result["ranks"] if row["rank"] == 0]
        parts = ("compute_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns")
        assert result["run"]["device"] == "gpu", result["notes"]
        assert notes == [], notes
        assert row["steps"] == self.steps, row
        assert sum(row[part] for part in parts) == row["step_ns"], row
        return row


def _device_event(event: dict[str, Any]) -> DeviceEvent:
    start_ns, duration_ns = (round(1000 * Decimal(event[key])) for key in ("ts", "dur"))
    stream = int(event["args"]["stream"])
    is_kernel = event["cat"] == "kernel"
    return DeviceEvent(
        name=event["name"], stream=stream, start_ns=start_ns, end_ns=start_ns + duration_ns, is_kernel=is_kernel
    )
