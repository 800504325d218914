"""What the links between ranks can do, as `tracekit links` measured it: times by collective, size and group.

Sizes are of the full array: n times a rank's shard for all-gather, reduce-scatter, gather and scatter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tracekit.model.metadata import Device, Integer, Rank, Record, WorldSize

LINKS_VERSION = 1

__all__ = ["LINKS_VERSION", "LeftOut", "LinkGroup", "LinkHost", "LinkMeasurements", "LinkRow", "LinkTime"]
__all__ += ["bus_factor", "link_time"]


class LinkHost(Record, frozen=True):
    host: str
    host_id: str  # a hash of the boot id, as in traces
    ranks: list[Rank]


class LinkGroup(Record, frozen=True):
    """Ranks that were measured together while all others were idle.

    Attributes:
        link: "host" if they share a host, "network" if each has its own, else "mixed".
    """

    id: Integer
    link: Literal["host", "network", "mixed"]
    ranks: list[Rank]


class LinkRow(Record, frozen=True):
    """One collective at one size.

    A repeat takes the time of its slowest rank. Bandwidths are of the median repeat.
    """

    kind: str  # as in traces; "send_recv" is one message from the group's first rank to its second
    group: Integer
    size_bytes: Integer
    repeats: Integer
    time_ns: Integer  # median
    min_ns: Integer
    algbw_bps: float
    busbw_bps: float


class LeftOut(Record, frozen=True):
    """What was not measured, and why. Without a size, no size of that kind was measured."""

    kind: str
    group: Integer
    size_bytes: Integer | None
    reason: str


class LinkMeasurements(Record, frozen=True):
    """The result of `tracekit links`."""

    version: Integer
    tracekit: str
    torch: str
    world_size: WorldSize
    backend: str
    device: Device
    hosts: list[LinkHost]
    groups: list[LinkGroup]
    rows: list[LinkRow]
    left_out: list[LeftOut]


@dataclass(frozen=True, kw_only=True)
class LinkTime:
    """The fitted time of a transfer: `time = latency + size / bandwidth`.

    Attributes:
        error: the largest relative deviation of a measured row.
    """

    latency_ns: float
    bandwidth_bps: float
    error: float

    def time_ns(self, size_bytes: float) -> float:
        """Return the time of a transfer of `size_bytes`."""
        return self.latency_ns + size_bytes / self.bandwidth_bps * 1e9


def bus_factor(kind: str, ranks: int) -> float:
    """Return busbw / algbw in a group of `ranks` (NVIDIA nccl-tests, PERFORMANCE.md)."""
    if kind == "all_reduce":
        return 2 * (ranks - 1) / ranks
    if kind in {"reduce_scatter", "all_gather", "all_to_all", "gather", "scatter"}:
        return (ranks - 1) / ranks
    return 1.0


def link_time(rows: Sequence[LinkRow]) -> LinkTime | None:
    """Return the line through the rows of one kind and group; None for fewer than two sizes or times that do not grow.

    Relative deviations are minimised, so that small and large sizes count alike: least squares of (latency + size /
    bandwidth) / time against 1, solved in closed form.
    """
    if len({row.size_bytes for row in rows}) < 2 or any(row.time_ns <= 0 for row in rows):
        return None
    a = [1 / row.time_ns for row in rows]
    b = [row.size_bytes / row.time_ns for row in rows]
    aa, ab, bb = (sum(x * y for x, y in zip(left, right, strict=True)) for left, right in ((a, a), (a, b), (b, b)))
    determinant = aa * bb - ab * ab
    if determinant <= 0:
        return None
    latency_ns = (sum(a) * bb - sum(b) * ab) / determinant
    per_byte_ns = (sum(b) * aa - sum(a) * ab) / determinant
    if latency_ns < 0:  # too small to be measured: the line goes through the origin
        latency_ns, per_byte_ns = 0.0, sum(b) / bb
    if per_byte_ns <= 0:
        return None
    error = max(abs(latency_ns * x + per_byte_ns * y - 1) for x, y in zip(a, b, strict=True))
    return LinkTime(latency_ns=latency_ns, bandwidth_bps=1e9 / per_byte_ns, error=error)
