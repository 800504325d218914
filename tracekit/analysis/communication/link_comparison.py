"""How long collectives take on idle links, as `tracekit links` measured it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

from tracekit.analysis.stats.latency_bandwidth import fit_latency_bandwidth
from tracekit.errors import InputError
from tracekit.model.links import LinkGroup, LinkMeasurements, LinkRow
from tracekit.model.run import Run
from tracekit.read.files.small_file import read_small_file

LinkClass = Literal["host", "network", "mixed"]

_FARTHEST = 4.0  # times the largest or smallest measured size: no result beyond that

__all__ = ["LinkClass", "LinkTime", "idle_time_ns", "link_class", "link_time", "read_links"]


@dataclass(frozen=True, kw_only=True)
class LinkTime:
    """How long transfers take on an idle link: `time = latency + size / bandwidth`.

    Attributes:
        error: the largest relative deviation of a measured row from that.
    """

    latency_ns: float
    bandwidth_bps: float
    error: float

    def time_ns(self, size_bytes: float) -> float:
        """Return how long a transfer of this size takes."""
        return self.latency_ns + size_bytes / self.bandwidth_bps * 1e9


def read_links(path: Path) -> LinkMeasurements:
    """Return the measurements. Raises InputError for a file that cannot be read or is no result of `tracekit links`."""
    hint = "write one with: torchrun --nproc-per-node 2 -m tracekit links -o links.json"
    try:
        return msgspec.json.decode(read_small_file(path), type=LinkMeasurements)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}", hint=hint) from error
    except msgspec.DecodeError as error:
        raise InputError(f"{path}: not a result of tracekit links ({error})", hint=hint) from error


def link_class(run: Run, ranks: Sequence[int]) -> LinkClass | None:
    """Return whether the ranks share a host, each have a different one, or neither; None where a host is not known."""
    of_ranks = [run.ranks[run.places[rank]].machine if rank in run.places else None for rank in ranks]
    if None in of_ranks or len(of_ranks) < 2:
        return None
    different = len(set(of_ranks))
    return "host" if different == 1 else "network" if different == len(of_ranks) else "mixed"


def idle_time_ns(links: LinkMeasurements, kind: str, ranks: Sequence[int], where: LinkClass | None, size: int) -> float:
    """Return how long a collective of `size` bytes takes when nothing else runs; NaN where that was not measured.

    The measurement of the same ranks is taken, else that of equally many ranks in the same place. Of several such
    groups the fastest counts.
    """
    same = [group for group in links.groups if set(group.ranks) == set(ranks)]
    alike = [group for group in links.groups if group.link == where and len(group.ranks) == len(ranks)]
    times = [_time_ns(links, group, kind, size) for group in same or alike]
    return min((time for time in times if not math.isnan(time)), default=math.nan)


def link_time(rows: Sequence[LinkRow]) -> LinkTime | None:
    """Return the line through the rows of one kind and group that keeps relative deviations small.

    So small and large sizes count alike. None for fewer than two sizes, or times that do not grow with size.
    """
    if len({row.size_bytes for row in rows}) < 2 or any(row.time_ns <= 0 for row in rows):
        return None
    size_bytes = np.array([row.size_bytes for row in rows], dtype=np.float64)
    time_ns = np.array([row.time_ns for row in rows], dtype=np.float64)
    line = fit_latency_bandwidth(size_bytes, time_ns, error_ns=time_ns)
    latency_ns, ns_per_byte = line.latency_ns, line.ns_per_byte
    if latency_ns < 0:  # too small to be seen: the line goes through the origin
        latency_ns, ns_per_byte = 0.0, float((size_bytes / time_ns).sum() / ((size_bytes / time_ns) ** 2).sum())
    if ns_per_byte <= 0 or math.isinf(line.latency_error_ns):
        return None
    error = float(np.abs((latency_ns + ns_per_byte * size_bytes) / time_ns - 1).max())
    return LinkTime(latency_ns=latency_ns, bandwidth_bps=1e9 / ns_per_byte, error=error)


def _time_ns(links: LinkMeasurements, group: LinkGroup, kind: str, size: int) -> float:
    rows: list[LinkRow] = [row for row in links.rows if row.group == group.id and row.kind == kind]
    sizes = [row.size_bytes for row in rows]
    if not rows or not min(sizes) / _FARTHEST <= size <= max(sizes) * _FARTHEST:
        return math.nan
    line = link_time(rows)
    if line is not None:
        return line.time_ns(size)
    nearest = min(rows, key=lambda row: abs(row.size_bytes - size))
    return nearest.time_ns * size / nearest.size_bytes
