"""Which module FSDP and ZeRO communicate for, what prefetching would hide, and whether units have a suitable size.

The tables are over all ranks, by module and by layer. Two sizes of units do not suit: one unit that holds nearly all,
and many that are mostly latency.

* While one giant unit is gathered there is nothing to compute, and its gradients are reduced after all is computed.
  With blocks as separate units, most of both could hide under compute. The saving is an upper bound.
* Small units are bound by latency. Latency and bandwidth are fitted to the run's all-gathers, so this needs units of
  different sizes. If g units are wrapped as one, g - 1 latencies vanish.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np

from tracekit.explain.communication.communication_sums import layers_alike, means_over_ranks, shares_by_key
from tracekit.explain.communication.tables import COMMUNICATION_SUMS
from tracekit.explain.configuration import CONFIGURATION
from tracekit.explain.fsdp import tables
from tracekit.explain.fsdp.per_rank import fsdp_gathers, fsdp_regathers, fsdp_sums
from tracekit.explain.fsdp.prefetch import (
    Forecast,
    gathers_of_gpus,
    prefetch_findings,
    prefetch_forecasts,
    shortest_transfers_ns,
)
from tracekit.explain.fsdp.tables import FSDP_GATHERS, FSDP_REGATHERS, FSDP_UNITS, FsdpGathers, FsdpSum
from tracekit.explain.section import Section, Unavailable
from tracekit.explain.step_time.step_lengths import savings_ns
from tracekit.findings.finding import Finding, held
from tracekit.findings.fsdp import giant_unit, tiny_units
from tracekit.findings.thresholds import TINY_UNITS, UNIT_SHARE
from tracekit.model.events import Int64
from tracekit.model.run import Run
from tracekit.model.table import Frame
from tracekit.stats.grouped import grouped, summed
from tracekit.stats.transfer_fit import LatencyBandwidth, fit_latency_bandwidth
from tracekit.stats.uncertainty import saving_conditions, standard_error

_BLOCKING = 0.02  # of blocking all-gathers this much may hide: the ends of operators

_NEARLY_ALL = 0.8  # of the time that is computed under units
_APART = 4.0  # times: sizes with this ratio tell latency from bandwidth
_MOSTLY = 0.5  # of a transfer
_LITTLE = 0.2  # of a transfer: that much may be latency
_SOLVED = 0.8  # of the waits, by prefetching
_SIGNIFICANT = 2.0  # standard errors


@dataclass(frozen=True, kw_only=True)
class Fsdp:
    """Communication by module under FSDP or ZeRO; tables are empty where nothing is sharded.

    Attributes:
        units: rows of tables.FSDP, sums over the complete steps of each rank.
        by_module: rows of tables.FSDP_BY_MODULE, the most exposed first.
        by_layer: rows of tables.FSDP_BY_LAYER, the most exposed first.
        prefetching: rows of tables.FSDP_PREFETCH, what explicit prefetching would hide.
        unavailable: why modules have no names, or why prefetching would hide nothing.
    """

    units: Frame = Frame(tables.FSDP)
    by_module: Frame = Frame(tables.FSDP_BY_MODULE)
    by_layer: Frame = Frame(tables.FSDP_BY_LAYER)
    prefetching: Frame = Frame(tables.FSDP_PREFETCH)
    findings: tuple[Finding, ...]
    unavailable: Unavailable | None


def fsdp(run: Run) -> Fsdp:
    """Return the tables over all ranks, and findings."""
    rows = [
        tables.FSDP.row(
            row,
            rank=summary.rank,
            shard_bytes=_shard_bytes(row),
            prefetch_ns=row.ahead_ns // row.ahead_count if row.ahead_count else None,
        )
        for summary in run.ranks
        for row in summary[FSDP_UNITS]
    ]
    by_module, forecasts = _by_module(run), prefetch_forecasts(run)
    wrapping = wrapping_findings(run, forecasts)
    return Fsdp(
        units=rows,
        by_module=by_module,
        by_layer=_by_layer(by_module),
        prefetching=[vars(forecast) for forecast in forecasts],
        # With other units other modules would wait, and what prefetching does then is not known.
        findings=(*wrapping, *(() if held(wrapping) else prefetch_findings(run, forecasts))),
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
    gathers = [row for summary in run.ranks for row in summary[COMMUNICATION_SUMS] if row.kind == "all_gather"]
    total_ns = sum(row.total_ns for row in gathers)
    return 1 - sum(row.exposed_ns for row in gathers) / total_ns if total_ns else None


def _by_module(run: Run) -> list[dict[str, Any]]:
    key = ("module", "kind", "phase")
    place_of = attrgetter(*key)
    shares = shares_by_key(run, FSDP_UNITS, place_of, ("count", "size_bytes", "exposed_ns"))
    units = [row for summary in run.ranks for row in summary[FSDP_UNITS]]
    ahead_count = summed((place_of(row), row.ahead_count) for row in units)
    ahead_ns = summed((place_of(row), row.ahead_ns) for row in units)
    rows: list[dict[str, Any]] = []
    for key_values, of_ranks in shares.items():
        prefetch_ns = ahead_ns[key_values] / ahead_count[key_values] if ahead_count[key_values] else None
        rows.append(dict(zip(key, key_values, strict=True)) | means_over_ranks(of_ranks) | {"prefetch_ns": prefetch_ns})
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


def wrapping_findings(run: Run, forecasts: Sequence[Forecast]) -> list[Finding]:
    """Return at most one finding: units are not both too large and too small."""
    gathers = gathers_of_gpus(run)
    if (
        not gathers
        or len(run.common_steps()) < 2
        or any((of_rank.size_bytes <= 0).any() for of_rank in gathers.values())
    ):
        return []
    giant = _one_giant(run, gathers)
    return giant if held(giant) else [*giant, *_many_tiny(run, gathers, forecasts)]


def _one_giant(run: Run, gathers: Mapping[int, FsdpGathers]) -> list[Finding]:
    sizes = _sizes(gathers)
    giant = max(sizes, key=lambda module: sizes[module])
    share = sizes[giant] / sum(sizes.values())
    computed = {module: sum(int(g.compute_ns[g.module == module].sum()) for g in gathers.values()) for module in sizes}
    if computed[giant] < _NEARLY_ALL * sum(computed.values()):
        return []
    hideable_ns: dict[tuple[int, int], int] = defaultdict(int)
    waits_ns = []
    for summary in run.ranks:
        of_rank = gathers.get(summary.rank)
        if of_rank is None:
            continue
        complete = [step for step in summary.steps if step.complete]
        reductions = [row for row in summary[FSDP_UNITS] if (row.module, row.kind) == (giant, "reduce_scatter")]
        reduction_ns = sum(row.exposed_ns for row in reductions) // len(complete)
        for step in complete:
            here = (of_rank.step == step.step) & (of_rank.module == giant)
            covered_ns = int(np.minimum(of_rank.wait_ns[here], of_rank.compute_ns[here]).sum())
            free_ns = max(step.compute_ns - covered_ns, 0)
            hideable_ns[summary.rank, step.step] = covered_ns + min(reduction_ns, free_ns)
            waits_ns.append(int(of_rank.wait_ns[here].sum()) + reduction_ns)
    savings = savings_ns(run, hideable_ns)
    saving_ns = statistics.fmean(savings)
    wait_ns = statistics.fmean(waits_ns)
    return [
        giant_unit(
            cause="transfer",
            time_ns=round(wait_ns),
            evidence={
                "module": giant,
                "share": share,
                "size_bytes": sizes[giant],
                "wait_ns": round(wait_ns),
                "no_replay": "how the unit would be gathered in parts is not recorded",
            },
            conditions=[
                UNIT_SHARE.reached_by(share),
                *saving_conditions(saving_ns, standard_error(savings), run.mean_rank_step_ns()),
            ],
        )
    ]


def _many_tiny(run: Run, gathers: Mapping[int, FsdpGathers], forecasts: Sequence[Forecast]) -> list[Finding]:
    sizes, shortest_ns = _sizes(gathers), shortest_transfers_ns(gathers)
    fit = _fit(gathers, sizes, shortest_ns)
    if fit is None:
        return []
    tiny = {
        module
        for module, size in sizes.items()
        if fit.latency_ns >= _MOSTLY * (fit.latency_ns + fit.ns_per_byte * size)
    }
    usual_bytes = statistics.median(sizes[module] for module in tiny) if tiny else 0
    if not tiny:
        return []
    # As many together that latency is a small part of the transfer; but several units must remain, to overlap.
    wanted = fit.latency_ns * (1 / _LITTLE - 1) / max(fit.ns_per_byte * usual_bytes, 1)
    together = max(2, min(math.ceil(wanted), len(tiny) // 4))
    # A stream that is never idle ends earlier by the work that it no longer has.
    vanishing = fit.latency_ns * (1 - 1 / together) / (fit.latency_ns + fit.ns_per_byte * usual_bytes)
    hidden_ns: dict[tuple[int, int], int] = defaultdict(int)
    waits_ns: dict[tuple[int, int], int] = defaultdict(int)
    for rank, of_rank in gathers.items():
        for step in sorted(run.common_steps()):
            for phase in np.unique(of_rank.phase):
                here = (of_rank.step == step) & (of_rank.phase == phase) & np.isin(of_rank.module, list(tiny))
                work_ns = int(shortest_ns[rank][here].sum() + of_rank.busy_ns[here].sum())
                wait_ns = int(of_rank.wait_ns[here].sum())
                hidden_ns[rank, step] += min(wait_ns, round(vanishing * work_ns))
                waits_ns[rank, step] += wait_ns
    savings = savings_ns(run, hidden_ns)
    saving_ns, waiting_ns = statistics.fmean(savings), statistics.fmean(waits_ns.values())
    error_ns = standard_error(savings) + saving_ns * _latency_error_ns(fit) / fit.latency_ns
    best_ns: dict[str, float] = defaultdict(float)
    for forecast in forecasts:
        best_ns[forecast.phase] = max(best_ns[forecast.phase], forecast.saving_ns)
    solved_ns = sum(best_ns.values())
    if solved_ns >= _SOLVED * waiting_ns:
        return []
    return [
        tiny_units(
            cause="transfer",
            time_ns=round(waiting_ns),
            evidence={
                "units": len(tiny),
                "size_bytes": usual_bytes,
                "latency_ns": round(fit.latency_ns),
                "wait_ns": round(waiting_ns),
                "together": together,
                "no_replay": "how units that are wrapped as one would be gathered is not recorded",
            },
            conditions=[
                TINY_UNITS.reached_by(len(tiny)),
                *saving_conditions(saving_ns, error_ns, run.mean_rank_step_ns()),
            ],
        )
    ]


def _sizes(gathers: Mapping[int, FsdpGathers]) -> dict[str, int]:
    """Return the bytes of each module's all-gather, the largest seen."""
    sizes: dict[str, int] = {}
    for of_rank in gathers.values():
        for module, size in zip(of_rank.module.tolist(), of_rank.size_bytes.tolist(), strict=True):
            sizes[module] = max(size, sizes.get(module, 0))
    return sizes


def _fit(
    gathers: Mapping[int, FsdpGathers], sizes: Mapping[str, int], shortest_ns: Mapping[int, Int64]
) -> LatencyBandwidth | None:
    """Return latency and bandwidth, fitted to the median transfer of each unit.

    None where sizes are too similar, or the latency is not significant.
    """
    transfers_ns = grouped(
        pair
        for rank, of_rank in gathers.items()
        for pair in zip(of_rank.module.tolist(), shortest_ns[rank].tolist(), strict=True)
    )
    if max(sizes.values()) < _APART * min(sizes.values()):
        return None
    times_ns = [statistics.median(transfers) for transfers in transfers_ns.values()]
    fit = fit_latency_bandwidth([sizes[module] for module in transfers_ns], times_ns)
    if fit.ns_per_byte < 0 or fit.latency_ns <= 0 or fit.latency_ns < _SIGNIFICANT * _latency_error_ns(fit):
        return None
    return fit


def _latency_error_ns(fit: LatencyBandwidth) -> float:
    """Return the standard error of the latency, by how far the units' transfers are off the line."""
    return math.sqrt(fit.misfit) * fit.latency_error_ns


FSDP_SECTION: Section[Fsdp] = Section(
    name="fsdp",
    reads=(FSDP_UNITS, FSDP_GATHERS, COMMUNICATION_SUMS, CONFIGURATION),
    keeps={FSDP_UNITS: fsdp_sums, FSDP_GATHERS: fsdp_gathers, FSDP_REGATHERS: fsdp_regathers},
    analyze=lambda given: fsdp(given.run),
    tables=(tables.FSDP, tables.FSDP_BY_MODULE, tables.FSDP_BY_LAYER, tables.FSDP_PREFETCH),
)
