"""Which module tensor, expert and context parallelism communicate for.

Per rank (in a worker): a trace and its lanes to `TensorSum` rows. Over ranks: `tensor(run)` to tables. Every collective
of a tp, ep or cp group is in a row; where no module is known of it, one without a name, so that nothing is lost.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tracekit import schema
from tracekit.analysis.lanes import Lanes
from tracekit.analysis.modules import modules_of_launches
from tracekit.analysis.phases import PHASES, PhaseTimeline
from tracekit.model.communication import KINDS
from tracekit.model.events import ABSENT, DecodedTrace
from tracekit.model.intervals import Intervals
from tracekit.model.run import Run
from tracekit.model.summary import StepParts, TensorSum

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Tensor", "merge_tensor_sums", "tensor", "tensor_sums"]

_WITHIN_LAYERS = ("tp", "ep", "cp")


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """`modules`: columns of schema.TENSOR, over the complete steps of each rank. `by_module`: columns of
    schema.TENSOR_BY_MODULE, most exposed first. Both empty without such groups.
    """

    modules: pd.DataFrame
    by_module: pd.DataFrame


def tensor_sums(
    trace: DecodedTrace, lanes: Lanes, phases: PhaseTimeline, steps: Sequence[StepParts]
) -> list[TensorSum]:
    """Rows by (module, parallelism, kind, phase) of one rank: times clipped to the complete steps among `steps`, counts
    by launch.
    """
    found, windows = lanes.communication_events, lanes.windows
    use = [group.parallelism if group.parallelism in _WITHIN_LAYERS else None for group in found.groups]
    in_scope = np.flatnonzero(np.array([*(u is not None for u in use), False], dtype=np.bool_)[found.group])
    if not len(in_scope):
        return []
    wanted = {step.step for step in steps if step.complete}
    of_wanted = np.array([int(step) in wanted for step in windows.step], dtype=np.bool_)
    inside = Intervals.union_of(windows.start_ns[of_wanted], windows.end_ns[of_wanted])
    counted = lanes.counted & (lanes.window >= 0) & of_wanted[np.maximum(lanes.window, 0)]
    module = modules_of_launches(trace.events, found.launch_track[in_scope].astype(np.int64), found.launch_ns[in_scope])
    phase = phases.at(found.launch_ns)
    members: dict[tuple[str | None, str | None, int, int], list[int]] = defaultdict(list)
    for name, i in zip(module, in_scope.tolist(), strict=True):
        members[name, use[found.group[i]], int(found.kind[i]), int(phase[i])].append(i)
    result = []
    for (name, parallelism, kind, phase_index), positions in members.items():
        own = np.array(positions, dtype=np.int64)
        here = own[counted[own]]
        time = Intervals.union_of(found.start_ns[own], found.end_ns[own]) & inside
        if not len(here) and not len(time):
            continue
        sizes = found.size_bytes[here]
        result.append(
            TensorSum(
                module=name,
                parallelism=str(parallelism),
                phase=PHASES[phase_index] if phase_index >= 0 else None,
                kind=KINDS[kind],
                count=len(here),
                size_bytes=int(sizes.sum()) if len(sizes) and (sizes != ABSENT).all() else None,
                exposed_ns=(time - lanes.compute).len_ns,
            )
        )
    return result


def merge_tensor_sums(rows: Sequence[TensorSum]) -> tuple[TensorSum, ...]:
    """Add up the rows of several recordings of one rank."""
    merged: dict[tuple[str | None, str, str, str | None], TensorSum] = {}
    for row in rows:
        key = (row.module, row.parallelism, row.kind, row.phase)
        if (seen := merged.get(key)) is not None:
            sizes = (seen.size_bytes, row.size_bytes)
            row = replace(
                row,
                count=seen.count + row.count,
                size_bytes=None if None in sizes else sum(size for size in sizes if size is not None),
                exposed_ns=seen.exposed_ns + row.exposed_ns,
            )
        merged[key] = row
    return tuple(merged.values())


def tensor(run: Run) -> Tensor:
    """The tables over all ranks."""
    rows = [
        {
            "rank": summary.rank,
            "module": row.module,
            "parallelism": row.parallelism,
            "phase": row.phase,
            "kind": row.kind,
            "count": row.count,
            "size_bytes": row.size_bytes,
            "exposed_ns": row.exposed_ns,
        }
        for summary in run.ranks
        for row in summary.tensor
    ]
    return Tensor(modules=schema.TENSOR.frame(rows), by_module=schema.TENSOR_BY_MODULE.frame(_by_module(run)))


def _by_module(run: Run) -> list[dict[str, object]]:
    shares: dict[tuple[str | None, str, str, str | None], list[tuple[int, int, TensorSum]]] = defaultdict(list)
    for summary in run.ranks:
        steps = sum(step.complete for step in summary.steps)
        for row in summary.tensor:
            shares[row.module, row.parallelism, row.kind, row.phase].append((summary.rank, steps, row))
    result: list[tuple[float, dict[str, object]]] = []
    for (module, parallelism, kind, phase), ranks in shares.items():
        worst_rank, worst_steps, worst = max(ranks, key=lambda share: (share[2].exposed_ns / share[1], -share[0]))
        sizes = [row.size_bytes / steps for _, steps, row in ranks if row.size_bytes is not None]
        exposed_ns = statistics.fmean(row.exposed_ns / steps for _, steps, row in ranks)
        shown: dict[str, object] = {
            "module": module,
            "parallelism": parallelism,
            "phase": phase,
            "kind": kind,
            "ranks": len(ranks),
            "count": statistics.fmean(row.count / steps for _, steps, row in ranks),
            "size_bytes": statistics.fmean(sizes) if len(sizes) == len(ranks) else None,
            "exposed_ns": exposed_ns,
            "worst_rank": worst_rank,
            "worst_exposed_ns": worst.exposed_ns / worst_steps,
        }
        result.append((exposed_ns, shown))
    # Sorting is stable: rows of equal exposure stay in the order in which the first rank came to them.
    return [shown for _, shown in sorted(result, key=lambda item: -item[0])]
