"""Which module FSDP and ZeRO communicate for, over all ranks: by module, by layer, and what prefetching would hide."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracekit.analysis.communication.communication_sums import (
    StepShare,
    layers_alike,
    means_over_ranks,
    step_share,
)
from tracekit.analysis.communication.parts import COMMUNICATION
from tracekit.analysis.finding import Finding
from tracekit.analysis.fsdp import columns
from tracekit.analysis.fsdp.parts import FSDP_UNITS, FsdpSum
from tracekit.analysis.fsdp.prefetch import prefetch_findings, prefetch_forecasts
from tracekit.analysis.fsdp.wrapping import wrapping_findings
from tracekit.analysis.section import Unavailable
from tracekit.analysis.table import Frame
from tracekit.model.communication import KINDS
from tracekit.model.run import Run

__all__ = ["Fsdp", "fsdp", "gathers_block"]

_BLOCKING = 0.02  # of blocking all-gathers this much may hide: the ends of operators
_NOT_COLLECTIVE = np.array([KINDS.index(kind) for kind in ("send", "recv", "send_recv")])


@dataclass(frozen=True, kw_only=True)
class Fsdp:
    """Communication by module under FSDP or ZeRO; tables are empty where nothing is sharded.

    Attributes:
        units: rows of columns.FSDP, sums over the complete steps of each rank.
        by_module: rows of columns.FSDP_BY_MODULE, the most exposed first.
        by_layer: rows of columns.FSDP_BY_LAYER, the most exposed first.
        prefetching: rows of columns.FSDP_PREFETCH, what explicit prefetching would hide.
        unavailable: why modules have no names, or why prefetching would hide nothing.
    """

    units: Frame = Frame(columns.FSDP)
    by_module: Frame = Frame(columns.FSDP_BY_MODULE)
    by_layer: Frame = Frame(columns.FSDP_BY_LAYER)
    prefetching: Frame = Frame(columns.FSDP_PREFETCH)
    findings: tuple[Finding, ...]
    unavailable: Unavailable | None


def fsdp(run: Run) -> Fsdp:
    """Return the tables over all ranks, and findings."""
    rows = [
        {
            "rank": summary.rank,
            "module": row.module,
            "unit_bytes": row.unit_bytes,
            "shard_bytes": _shard_bytes(row),
            "phase": row.phase,
            "kind": row.kind,
            "count": row.count,
            "size_bytes": row.size_bytes,
            "exposed_ns": row.exposed_ns,
            "prefetch_ns": row.ahead_ns // row.ahead_count if row.ahead_count else None,
        }
        for summary in run.ranks
        for row in summary[FSDP_UNITS]
    ]
    by_module, forecasts = _by_module(run), prefetch_forecasts(run)
    return Fsdp(
        units=rows,
        by_module=by_module,
        by_layer=_by_layer(by_module),
        prefetching=[vars(forecast) for forecast in forecasts],
        # With other units other modules would wait, and what prefetching does then is not known.
        findings=tuple(wrapping_findings(run, forecasts) or prefetch_findings(run, forecasts)),
        unavailable=_unavailable(run),
    )


def _unavailable(run: Run) -> Unavailable | None:
    """Return why modules have no names, or that all-gathers block their rank, so that prefetching hides nothing."""
    rows = [row for summary in run.ranks for row in summary[FSDP_UNITS]]
    if rows and "fsdp1" in run.strategies and all(row.module is None for row in rows):
        return Unavailable(reason="FSDP1 does not name its modules in a trace; recorded with tracekit they have names")
    if not gathers_block(run):
        return None
    blocking = f"all-gathers block their rank here, as FSDP's do on CPUs ({_hidden_share(run):.0%} of their time hides)"
    return Unavailable(reason=f"{blocking}: prefetching would hide nothing")


def gathers_block(run: Run) -> bool:
    """Return whether FSDP waits in each all-gather, as on CPUs, so that nothing overlaps."""
    hidden = _hidden_share(run)
    is_fsdp = bool({"fsdp1", "fsdp2"} & set(run.strategies))
    return run.device == "cpu" and is_fsdp and hidden is not None and hidden <= _BLOCKING


def _hidden_share(run: Run) -> float | None:
    """Return the share of the time of all-gathers that nothing waits for; None without any."""
    gathers = [row for summary in run.ranks for row in summary[COMMUNICATION] if row.kind == "all_gather"]
    total_ns = sum(row.total_ns for row in gathers)
    return 1 - sum(row.exposed_ns for row in gathers) / total_ns if total_ns else None


def _by_module(run: Run) -> list[dict[str, Any]]:
    shares: dict[tuple[str | None, str, str | None], list[StepShare]] = defaultdict(list)
    ahead: dict[tuple[str | None, str, str | None], list[FsdpSum]] = defaultdict(list)
    for summary in run.ranks:
        steps = sum(step.complete for step in summary.steps)
        for row in summary[FSDP_UNITS]:
            shares[row.module, row.kind, row.phase].append(step_share(summary.rank, steps, [row]))
            ahead[row.module, row.kind, row.phase].append(row)
    rows: list[dict[str, Any]] = []
    for (module, kind, phase), ranks in shares.items():
        known = sum(row.ahead_count for row in ahead[module, kind, phase])
        ahead_ns = sum(row.ahead_ns for row in ahead[module, kind, phase])
        means = {**means_over_ranks(ranks), "prefetch_ns": ahead_ns / known if known else None}
        rows.append({"module": module, "phase": phase, "kind": kind, **means})
    # Sorting is stable: rows of equal exposure keep the order of the first rank.
    return sorted(rows, key=lambda row: -row["exposed_ns"])


def _by_layer(by_module: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows of layers alike. Their prefetch time is the mean over the modules."""
    rows = layers_alike(by_module, ("kind", "phase"), ("count", "size_bytes", "exposed_ns", "prefetch_ns"))
    ahead_ns = [None if row["prefetch_ns"] is None else row["prefetch_ns"] / row["modules"] for row in rows]
    return [row | {"prefetch_ns": mean_ns} for row, mean_ns in zip(rows, ahead_ns, strict=True)]


def _shard_bytes(row: FsdpSum) -> int | None:
    """Return what this rank contributes to each all-gather, or keeps after each reduce-scatter."""
    if row.kind not in {"all_gather", "reduce_scatter"} or row.size_bytes is None or not row.shards or not row.count:
        return None
    return row.size_bytes // (row.count * row.shards)
