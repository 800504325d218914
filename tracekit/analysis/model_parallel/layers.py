"""Which module tensor, expert and context parallelism communicate for, over all ranks."""

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
from tracekit.analysis.model_parallel import columns
from tracekit.analysis.model_parallel.expert_communication import ExpertCommunication, expert_communication
from tracekit.analysis.model_parallel.expert_load import ExpertLoad, expert_load
from tracekit.analysis.model_parallel.parts import LAYERS
from tracekit.analysis.table import Frame
from tracekit.findings.finding import Finding
from tracekit.model.run import Run

__all__ = ["TensorParallel", "tensor_parallel"]

_WITHIN_LAYERS = ("tp", "ep", "cp")
_NONE = -1
_DTENSOR = re.compile(r"(?:(?:Nested)?Redistribute|_FromTorchTensor|_ToTorchTensor)(?:Backward)?")


@dataclass(frozen=True, kw_only=True)
class TensorParallel:
    """Communication within layers of all ranks; empty without groups of tp, ep or cp.

    Attributes:
        modules: rows of columns.TENSOR, sums over the complete steps of each rank.
        by_module: rows of columns.TENSOR_BY_MODULE, the most exposed first.
        by_layer: rows of columns.TENSOR_BY_LAYER, the most exposed first.
        findings: those on the load of experts.
    """

    modules: Frame = Frame(columns.TENSOR)
    by_module: Frame = Frame(columns.TENSOR_BY_MODULE)
    by_layer: Frame = Frame(columns.TENSOR_BY_LAYER)
    experts: ExpertLoad
    expert_communication: ExpertCommunication
    findings: tuple[Finding, ...]


def tensor_parallel(run: Run) -> TensorParallel:
    """Return the tables over all ranks."""
    rows = [
        columns.TENSOR.row(row, rank=summary.rank, layer_share=_share(row.exposed_ns, row.layer_ns))
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
