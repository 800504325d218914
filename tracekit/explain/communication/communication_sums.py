"""How long ranks communicate, by group, kind and phase, and by group alone.

The tables by kind (`overlap.py`), by FSDP module and by layer share these sums. A sum with an unknown size is unknown.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

import numpy as np

from tracekit.explain.communication.tables import CommunicationSum, GroupTime
from tracekit.model.communication import KINDS
from tracekit.model.events import ABSENT
from tracekit.model.intervals import Intervals
from tracekit.model.names.modules import name_of_layers_alike
from tracekit.model.run import Run
from tracekit.model.summary import Part
from tracekit.rank.lanes import complete_steps
from tracekit.rank.phases import PHASES
from tracekit.rank.recorded_steps import RecordedSteps
from tracekit.stats.grouped import grouped
from tracekit.stats.rows_by_key import rows_by_key

K = TypeVar("K", bound=Hashable)
S = TypeVar("S")

_MESSAGES = tuple(KINDS.index(kind) for kind in ("send", "recv", "send_recv"))


def shares_by_key(
    run: Run, part: Part[tuple[S, ...]], key: Callable[[S], K], amounts: Sequence[str]
) -> dict[K, list[dict[str, Any]]]:
    """Return what each rank spends on its rows of one key in a step: the `amounts`, means over its complete steps."""
    shares: dict[K, list[dict[str, Any]]] = defaultdict(list)
    for summary in run.ranks:
        steps = sum(step.complete for step in summary.steps)
        for each, rows in grouped((key(row), row) for row in summary[part]).items():
            sums = {name: _sum([getattr(row, name) for row in rows]) for name in amounts}
            means = {name: None if total is None else total / steps for name, total in sums.items()}
            shares[each].append({"rank": summary.rank, **means})
    return shares


def means_over_ranks(shares: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the means over the ranks that take part, and the rank with the most exposed time.

    Of equals it is the lowest rank.
    """
    worst = max(shares, key=lambda share: (share["exposed_ns"], -share["rank"]))
    values = {name: [share[name] for share in shares] for name in worst if name != "rank"}
    return {
        "ranks": len(shares),
        **{name: None if None in of_ranks else statistics.fmean(of_ranks) for name, of_ranks in values.items()},
        "worst_rank": worst["rank"],
        "worst_exposed_ns": worst["exposed_ns"],
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


def communication_sums(recorded: RecordedSteps) -> tuple[CommunicationSum, ...]:
    """Return rows by (group, kind, phase): times within the complete steps, counts by launch.

    A collective that ran as several spans (a reduce-scatter of a list, on Gloo) counts once, with its size. Its time is
    the union of its spans.
    """
    lanes = recorded.lanes
    communication, complete = lanes.communication_events, complete_steps(lanes, recorded.steps)
    phase = recorded.phases.at(communication.launch_ns)
    rows = []
    for (group, kind, phase_index), here in rows_by_key(communication.group, communication.kind, phase).items():
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
    return tuple(rows)


def group_times(recorded: RecordedSteps) -> tuple[GroupTime, ...]:
    """Return rows by group, of collectives and of messages: times within the complete steps."""
    lanes = recorded.lanes
    communication, complete = lanes.communication_events, complete_steps(lanes, recorded.steps)
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
    return tuple(rows)
