"""What collectives achieve against what the links between their ranks can do.

Comes in: the result of `tracekit links` (`links.json`), and a collective's kind, ranks and size. Goes out: the time
that it takes on idle links, and between which hosts these are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from tracekit.errors import InputError
from tracekit.model.links import LinkGroup, LinkMeasurements, LinkRow, link_time
from tracekit.model.run import Run

LinkClass = Literal["host", "network", "mixed"]

_FARTHEST = 4.0  # times the largest or smallest size that was measured: beyond it nothing is said

__all__ = ["LinkClass", "idle_time_ns", "link_class", "read_links"]


def read_links(path: Path) -> LinkMeasurements:
    """Raises InputError for a file that cannot be read or is no result of `tracekit links`."""
    hint = "write one with: torchrun --nproc-per-node 2 -m tracekit links -o links.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=LinkMeasurements)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}", hint=hint) from error
    except msgspec.DecodeError as error:
        raise InputError(f"{path}: not a result of tracekit links ({error})", hint=hint) from error


def link_class(run: Run, ranks: Sequence[int]) -> LinkClass | None:
    """Whether ranks share a host, or each has its own, or neither; None where a host is not known."""
    hosts = {summary.rank: summary.machine for summary in run.ranks}
    own = [hosts.get(rank) for rank in ranks]
    if None in own or len(own) < 2:
        return None
    different = len(set(own))
    return "host" if different == 1 else "network" if different == len(own) else "mixed"


def idle_time_ns(links: LinkMeasurements, kind: str, ranks: Sequence[int], where: LinkClass | None, size: int) -> float:
    """What a collective of this size takes when nothing else runs: as these ranks were measured, else as many ranks in
    the same place; NaN where that was not measured. Of several groups alike, the quickest speaks.
    """
    same = [group for group in links.groups if set(group.ranks) == set(ranks)]
    alike = [group for group in links.groups if group.link == where and len(group.ranks) == len(ranks)]
    times = [_time_ns(links, group, kind, size) for group in same or alike]
    return min((time for time in times if not math.isnan(time)), default=math.nan)


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
