"""Which module tensor, expert and context parallelism communicate for.

Per rank (in a worker): a trace and its lanes to `TensorSum` rows. Over ranks: `tensor(run)` to tables. Every collective
of a tp, ep or cp group is in a row; where no module is known of it, one without a name, so that nothing is lost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tracekit import schema
from tracekit.analysis.communication_sums import StepShare, means_over_ranks, merge_sums, step_share, sum_of_sizes
from tracekit.analysis.lanes import Lanes, complete_steps
from tracekit.analysis.modules import modules_of_launches
from tracekit.analysis.phases import PHASES, PhaseTimeline
from tracekit.model.communication import KINDS
from tracekit.model.events import DecodedTrace
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
    found = lanes.communication_events
    use = [group.parallelism if group.parallelism in _WITHIN_LAYERS else None for group in found.groups]
    in_scope = np.flatnonzero(np.array([*(u is not None for u in use), False], dtype=np.bool_)[found.group])
    if not len(in_scope):
        return []
    complete = complete_steps(lanes, steps)
    module = modules_of_launches(trace.events, found.launch_track[in_scope].astype(np.int64), found.launch_ns[in_scope])
    phase = phases.at(found.launch_ns)
    members: dict[tuple[str | None, str | None, int, int], list[int]] = defaultdict(list)
    for name, i in zip(module, in_scope.tolist(), strict=True):
        members[name, use[found.group[i]], int(found.kind[i]), int(phase[i])].append(i)
    result = []
    for (name, parallelism, kind, phase_index), positions in members.items():
        own = np.array(positions, dtype=np.int64)
        here = own[complete.counted[own]]
        time = Intervals.union_of(found.start_ns[own], found.end_ns[own]) & complete.time
        if not len(here) and not len(time):
            continue
        result.append(
            TensorSum(
                module=name,
                parallelism=str(parallelism),
                phase=PHASES[phase_index] if phase_index >= 0 else None,
                kind=KINDS[kind],
                count=len(here),
                size_bytes=sum_of_sizes(found.size_bytes[here]),
                exposed_ns=(time - lanes.compute).len_ns,
            )
        )
    return result


def merge_tensor_sums(rows: Sequence[TensorSum]) -> tuple[TensorSum, ...]:
    """Those of several recordings of one rank."""
    amounts = ("count", "size_bytes", "exposed_ns")
    return merge_sums(rows, lambda row: (row.module, row.parallelism, row.kind, row.phase), amounts)


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
    shares: dict[tuple[str | None, str, str, str | None], list[StepShare]] = defaultdict(list)
    for summary in run.ranks:
        steps = sum(step.complete for step in summary.steps)
        for row in summary.tensor:
            key = (row.module, row.parallelism, row.kind, row.phase)
            shares[key].append(step_share(summary.rank, steps, [row]))
    rows = [
        {"module": module, "parallelism": parallelism, "phase": phase, "kind": kind, **means_over_ranks(ranks)}
        for (module, parallelism, kind, phase), ranks in shares.items()
    ]
    # Sorting is stable: rows of equal exposure stay in the order in which the first rank came to them.
    return sorted(rows, key=lambda row: -row["exposed_ns"])
