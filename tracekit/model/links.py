"""What the links between ranks can do, as `tracekit links` measured it: times by collective, size and group.

Sizes are of the full array: n times a rank's shard for all-gather, reduce-scatter, gather and scatter.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from tracekit.model.metadata import Device, Integer, Rank, WorldSize

LINKS_VERSION = 1

__all__ = ["LINKS_VERSION", "LeftOut", "LinkGroup", "LinkHost", "LinkMeasurements", "LinkRow", "bus_factor"]


class LinkHost(msgspec.Struct, frozen=True, kw_only=True):
    host: str
    host_id: str  # a hash of the boot id, as in traces
    ranks: list[Rank]


class LinkGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks that were measured together while all others were idle.

    Attributes:
        link: "host" if they share a host, "network" if each has its own, else "mixed".
    """

    id: Integer
    link: Literal["host", "network", "mixed"]
    ranks: list[Rank]


class LinkRow(msgspec.Struct, frozen=True, kw_only=True):
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


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """What was not measured, and why. Without a size, no size of that kind was measured."""

    kind: str
    group: Integer
    size_bytes: Integer | None
    reason: str


class LinkMeasurements(msgspec.Struct, frozen=True, kw_only=True):
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


def bus_factor(kind: str, ranks: int) -> float:
    """Return busbw / algbw in a group of `ranks` (NVIDIA nccl-tests, PERFORMANCE.md)."""
    if kind == "all_reduce":
        return 2 * (ranks - 1) / ranks
    if kind in {"reduce_scatter", "all_gather", "all_to_all", "gather", "scatter"}:
        return (ranks - 1) / ranks
    return 1.0
