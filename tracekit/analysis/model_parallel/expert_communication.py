"""How long all ranks bring tokens to experts and take them back, and how much of that compute hides."""

from __future__ import annotations

import statistics
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from tracekit.analysis.communication.communication_sums import StepShare, means_over_ranks, step_share
from tracekit.analysis.events.phases import PHASES
from tracekit.analysis.model_parallel import columns
from tracekit.analysis.model_parallel.parts import EXPERT_COMMUNICATION, ExpertCommunicationSum
from tracekit.analysis.table import Frame
from tracekit.model.run import Run

__all__ = ["ExpertCommunication", "expert_communication"]

_Key = tuple[str, str | None, int | None]  # direction, phase, microbatch


@dataclass(frozen=True, kw_only=True)
class ExpertCommunication:
    """Dispatches and combines of all ranks; empty without expert parallelism.

    Attributes:
        ranks: rows of columns.EXPERT_COMMUNICATION, sums over the complete steps of each rank.
        means: rows of columns.EXPERT_COMMUNICATION_MEANS, in the order of microbatches, phases and directions.
    """

    ranks: Frame = Frame(columns.EXPERT_COMMUNICATION)
    means: Frame = Frame(columns.EXPERT_COMMUNICATION_MEANS)


def expert_communication(run: Run) -> ExpertCommunication:
    """Return the tables over all ranks."""
    index = {group: i for i, group in enumerate(run.groups)}
    rows = [
        columns.EXPERT_COMMUNICATION.row(row, rank=summary.rank, group=None if row.group is None else index[row.group])
        for summary in run.ranks
        for row in summary[EXPERT_COMMUNICATION]
    ]
    return ExpertCommunication(ranks=rows, means=_means(run))


def _means(run: Run) -> list[dict[str, Any]]:
    shares: dict[_Key, list[StepShare]] = defaultdict(list)
    total_ns, overlapped_ns = (defaultdict[_Key, list[float]](list) for _ in range(2))
    for summary in run.ranks:
        steps = sum(step.complete for step in summary.steps)
        of_rank: dict[_Key, list[ExpertCommunicationSum]] = defaultdict(list)
        for row in summary[EXPERT_COMMUNICATION]:
            of_rank[row.direction, row.phase, row.microbatch].append(row)
        for key, rows in of_rank.items():
            shares[key].append(step_share(summary.rank, steps, rows))
            total_ns[key].append(sum(row.total_ns for row in rows) / steps)
            overlapped_ns[key].append(sum(row.overlapped_ns for row in rows) / steps)
    result = []
    for direction, phase, microbatch in sorted(shares, key=_order):
        means = means_over_ranks(shares[direction, phase, microbatch])
        mean_ns, hidden_ns = (statistics.fmean(of[direction, phase, microbatch]) for of in (total_ns, overlapped_ns))
        of_all = {"direction": direction, "phase": phase, "microbatch": microbatch}
        result.append({**of_all, "total_ns": mean_ns, "overlapped_ns": hidden_ns, **means})
    return result


def _order(key: _Key) -> tuple[int, int, bool]:
    direction, phase, microbatch = key
    place = PHASES.index(phase) if phase in PHASES else len(PHASES)
    return (-1 if microbatch is None else microbatch, place, direction == "combine")
