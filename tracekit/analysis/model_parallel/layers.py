"""Which module tensor, expert and context parallelism communicate for, over all ranks.

Of experts: how long all ranks bring tokens to them and take them back, and how much of that compute hides.
"""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tracekit.analysis.communication.communication_sums import (
    StepShare,
    layers_alike,
    means_over_ranks,
    step_share,
)
from tracekit.analysis.events.phases import PHASES
from tracekit.analysis.model_parallel import tables
from tracekit.analysis.model_parallel.expert_load import ExpertLoad, expert_load
from tracekit.analysis.model_parallel.tables import EXPERT_COMMUNICATION_SUMS, LAYERS, ExpertCommunicationSum
from tracekit.analysis.table import Frame
from tracekit.findings.finding import Finding
from tracekit.model.run import Run

__all__ = ["TensorParallel", "tensor_parallel"]


_WITHIN_LAYERS = ("tp", "ep", "cp")
_NONE = -1
_DTENSOR = re.compile(r"(?:(?:Nested)?Redistribute|_FromTorchTensor|_ToTorchTensor)(?:Backward)?")

_Key = tuple[str, str | None, int | None]  # direction, phase, microbatch


@dataclass(frozen=True, kw_only=True)
class TensorParallel:
    """Communication within layers of all ranks; empty without groups of tp, ep or cp.

    Attributes:
        modules: rows of tables.TENSOR, sums over the complete steps of each rank.
        by_module: rows of tables.TENSOR_BY_MODULE, the most exposed first.
        by_layer: rows of tables.TENSOR_BY_LAYER, the most exposed first.
        findings: those on the load of experts.
    """

    modules: Frame = Frame(tables.TENSOR)
    by_module: Frame = Frame(tables.TENSOR_BY_MODULE)
    by_layer: Frame = Frame(tables.TENSOR_BY_LAYER)
    experts: ExpertLoad
    expert_communication: ExpertCommunication
    findings: tuple[Finding, ...]


def tensor_parallel(run: Run) -> TensorParallel:
    """Return the tables over all ranks."""
    rows = [
        tables.TENSOR.row(row, rank=summary.rank, layer_share=_share(row.exposed_ns, row.layer_ns))
        for summary in run.ranks
        for row in summary[LAYERS]
    ]
    by_module, experts = _by_module(run), expert_load(run)
    return TensorParallel(
        modules=rows,
        by_module=by_module,
        by_layer=_by_layer(by_module),
        experts=experts,
        expert_communication=expert_communication(run),
        findings=experts.findings,
    )


def _share(exposed_ns: float | None, layer_ns: float | None) -> float | None:
    return exposed_ns / layer_ns if layer_ns and exposed_ns is not None else None


def _by_module(run: Run) -> list[dict[str, Any]]:
    shares: dict[tuple[str | None, str, str, str | None], list[StepShare]] = defaultdict(list)
    layers: dict[tuple[str | None, str, str, str | None], list[float | None]] = defaultdict(list)
    for summary in run.ranks:
        steps = sum(step.complete for step in summary.steps)
        for row in summary[LAYERS]:
            key = (row.module, row.parallelism, row.kind, row.phase)
            shares[key].append(step_share(summary.rank, steps, [row]))
            layers[key].append(None if row.layer_ns is None else row.layer_ns / steps)
    inferred = any(row.inferred for summary in run.ranks for row in summary[LAYERS])
    rows = []
    for key, ranks in shares.items():
        module, parallelism, kind, phase = key
        means = means_over_ranks(ranks)
        known = [layer for layer in layers[key] if layer is not None]
        layer_ns = statistics.fmean(known) if len(known) == len(layers[key]) else None
        share = _share(means["exposed_ns"], layer_ns)
        layer = {"layer_ns": layer_ns, "layer_share": share, "inferred": inferred}
        rows.append({"module": module, "parallelism": parallelism, "phase": phase, "kind": kind, **means, **layer})
    # Sorting is stable: rows of equal exposure keep the order of the first rank.
    return sorted(rows, key=lambda row: -row["exposed_ns"])


def _by_layer(by_module: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    same, amounts = ("parallelism", "kind", "phase", "inferred"), ("count", "size_bytes", "exposed_ns", "layer_ns")
    rows = layers_alike(by_module, same, amounts)
    return [row | {"layer_share": _share(row["exposed_ns"], row["layer_ns"])} for row in rows]


@dataclass(frozen=True, kw_only=True)
class ExpertCommunication:
    """Dispatches and combines of all ranks; empty without expert parallelism.

    Attributes:
        ranks: rows of tables.EXPERT_COMMUNICATION, sums over the complete steps of each rank.
        means: rows of tables.EXPERT_COMMUNICATION_MEANS, in the order of microbatches, phases and directions.
    """

    ranks: Frame = Frame(tables.EXPERT_COMMUNICATION)
    means: Frame = Frame(tables.EXPERT_COMMUNICATION_MEANS)


def expert_communication(run: Run) -> ExpertCommunication:
    """Return the tables over all ranks."""
    index = {group: i for i, group in enumerate(run.groups)}
    rows = [
        tables.EXPERT_COMMUNICATION.row(row, rank=summary.rank, group=None if row.group is None else index[row.group])
        for summary in run.ranks
        for row in summary[EXPERT_COMMUNICATION_SUMS]
    ]
    return ExpertCommunication(ranks=rows, means=_means(run))


def _means(run: Run) -> list[dict[str, Any]]:
    shares: dict[_Key, list[StepShare]] = defaultdict(list)
    total_ns, overlapped_ns = (defaultdict[_Key, list[float]](list) for _ in range(2))
    for summary in run.ranks:
        steps = sum(step.complete for step in summary.steps)
        of_rank: dict[_Key, list[ExpertCommunicationSum]] = defaultdict(list)
        for row in summary[EXPERT_COMMUNICATION_SUMS]:
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
