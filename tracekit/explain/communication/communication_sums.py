"""Sums of communication, of one rank's events and recordings and over ranks.

The tables by kind (`overlap.py`), by FSDP module and by layer share them. A sum with an unknown size is not known.

One rank's communication by group, kind and phase, and by group alone.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from tracekit.explain.communication.tables import CommunicationSum, GroupTime
from tracekit.model.communication import KINDS
from tracekit.model.events import ABSENT
from tracekit.model.intervals import Intervals
from tracekit.model.names.modules import name_of_layers_alike
from tracekit.model.summary import StepParts
from tracekit.rank.lanes import Lanes, complete_steps
from tracekit.rank.phases import PHASES, PhaseTimeline

S = TypeVar("S")

_MESSAGES = tuple(KINDS.index(kind) for kind in ("send", "recv", "send_recv"))


class _Sum(Protocol):
    """A row of a rank's sums: number of collectives, bytes of their full arrays, and exposed time."""

    @property
    def count(self) -> int: ...
    @property
    def size_bytes(self) -> int | None: ...
    @property
    def exposed_ns(self) -> int: ...


@dataclass(frozen=True, kw_only=True)
class StepShare:
    """What one rank spends on some communication in a step, mean over its complete steps."""

    rank: int
    count: float
    size_bytes: float | None
    exposed_ns: float


def step_share(rank: int, steps: int, rows: Sequence[_Sum]) -> StepShare:
    """Return what these rows make in one of `steps` steps."""
    sizes = [row.size_bytes for row in rows if row.size_bytes is not None]
    return StepShare(
        rank=rank,
        count=sum(row.count for row in rows) / steps,
        size_bytes=sum(sizes) / steps if len(sizes) == len(rows) else None,
        exposed_ns=sum(row.exposed_ns for row in rows) / steps,
    )


def means_over_ranks(shares: Sequence[StepShare]) -> dict[str, Any]:
    """Return the means over the ranks that take part, and the rank with the most exposed time.

    Of equals it is the lowest rank.
    """
    worst = max(shares, key=lambda share: (share.exposed_ns, -share.rank))
    sizes = [share.size_bytes for share in shares if share.size_bytes is not None]
    return {
        "ranks": len(shares),
        "count": statistics.fmean(share.count for share in shares),
        "size_bytes": statistics.fmean(sizes) if len(sizes) == len(shares) else None,
        "exposed_ns": statistics.fmean(share.exposed_ns for share in shares),
        "worst_rank": worst.rank,
        "worst_exposed_ns": worst.exposed_ns,
    }


def layers_alike(
    by_module: Sequence[dict[str, Any]], same: Sequence[str], amounts: Sequence[str]
) -> list[dict[str, Any]]:
    """Return one row for all layers whose names differ only in numbers, the most exposed first.

    `by_module`: rows of modules, the most exposed first. Layers are alike if the fields `same` are equal. The row has
    the number of `modules`, the sums of `amounts` over them, and the worst of them.
    """
    groups: dict[tuple[str | None, tuple[object, ...]], list[dict[str, Any]]] = {}
    for row in by_module:
        name = None if row["module"] is None else name_of_layers_alike(row["module"])
        groups.setdefault((name, tuple(row[field] for field in same)), []).append(row)
    rows: list[dict[str, Any]] = []
    for (name, _), members in groups.items():
        worst = members[0]
        row = {field: worst[field] for field in same}
        row |= {amount: _sum([member[amount] for member in members]) for amount in amounts}
        row |= {"module": worst["module"] if len(members) == 1 else name, "modules": len(members)}
        rows.append(row | {"worst_module": worst["module"], "worst_exposed_ns": worst["exposed_ns"]})
    return sorted(rows, key=lambda row: -row["exposed_ns"])


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def communication_sums(lanes: Lanes, phases: PhaseTimeline, steps: Sequence[StepParts]) -> list[CommunicationSum]:
    """Return rows by (group, kind, phase): times within the complete steps among `steps`, counts by launch.

    A collective that ran as several spans (a reduce-scatter of a list, on Gloo) counts once, with its size. Its time is
    the union of its spans.
    """
    communication, complete = lanes.communication_events, complete_steps(lanes, steps)
    phase = phases.at(communication.launch_ns)
    keys = np.stack((communication.group, communication.kind, phase)).astype(np.int64)
    order = np.lexsort(keys[::-1])
    ordered = keys[:, order]
    begins = np.flatnonzero((ordered[:, 1:] != ordered[:, :-1]).any(axis=0)) + 1
    rows = []
    for here in np.split(order, begins):
        if not len(here):
            continue
        group, kind, phase_index = keys[:, here[0]].tolist()
        time = Intervals.union_of(communication.start_ns[here], communication.end_ns[here]) & complete.time
        counted = here[complete.counted[here]]
        count = len(counted)
        if not count and not len(time):
            continue
        rows.append(
            CommunicationSum(
                group=communication.groups[group] if group != ABSENT else None,
                kind=KINDS[kind],
                phase=PHASES[phase_index] if phase_index >= 0 else None,
                count=count,
                size_bytes=communication.total_size_bytes(counted),
                total_ns=time.len_ns,
                exposed_ns=int(complete.exposed_ns[here].sum()),
            )
        )
    return rows


def group_times(lanes: Lanes, steps: Sequence[StepParts]) -> list[GroupTime]:
    """Return rows by group, of collectives and of messages: times within the complete steps among `steps`."""
    communication, complete = lanes.communication_events, complete_steps(lanes, steps)
    keys = 2 * communication.group.astype(np.int64) + np.isin(communication.kind, _MESSAGES)
    rows = []
    for key in np.unique(keys).tolist():
        here = np.flatnonzero(keys == key)
        time = Intervals.union_of(communication.start_ns[here], communication.end_ns[here]) & complete.time
        if len(time):
            rows.append(
                GroupTime(
                    group=None if key < 0 else communication.groups[key // 2],
                    messages=bool(key % 2),
                    total_ns=time.len_ns,
                    exposed_ns=int(complete.exposed_ns[here].sum()),
                )
            )
    return rows
