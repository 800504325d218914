"""Whether FSDP's units have a suitable size: not one that holds nearly all, nor many that are mostly latency.

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

import numpy as np

from tracekit.analysis.finding import Finding
from tracekit.analysis.fsdp.parts import FSDP_UNITS, FsdpGathers
from tracekit.analysis.fsdp.prefetch import Forecast, gathers_of_gpus, shortest_transfers_ns
from tracekit.analysis.stats.latency_bandwidth import LatencyBandwidth, fit_latency_bandwidth
from tracekit.analysis.stats.significance import standard_error
from tracekit.analysis.step_time.savings import savings_ns
from tracekit.model.events import Int64
from tracekit.model.quantities import file_size
from tracekit.model.run import Run

__all__ = ["wrapping_findings"]

_NEARLY_ALL = 0.8  # of the bytes
_MANY = 8  # units
_APART = 4.0  # times: sizes with this ratio tell latency from bandwidth
_MOSTLY = 0.5  # of a transfer
_LITTLE = 0.2  # of a transfer: that much may be latency
_NOTABLE = 0.02  # of a step
_SOLVED = 0.8  # of the waits, by prefetching
_SIGNIFICANT = 2.0  # standard errors


def wrapping_findings(run: Run, forecasts: Sequence[Forecast]) -> list[Finding]:
    """Return at most one finding: units are not both too large and too small."""
    gathers = gathers_of_gpus(run)
    if (
        not gathers
        or len(run.common_steps()) < 2
        or any((of_rank.size_bytes <= 0).any() for of_rank in gathers.values())
    ):
        return []
    return _one_giant(run, gathers) or _many_tiny(run, gathers, forecasts)


def _one_giant(run: Run, gathers: Mapping[int, FsdpGathers]) -> list[Finding]:
    sizes = _sizes(gathers)
    giant = max(sizes, key=lambda module: sizes[module])
    share = sizes[giant] / sum(sizes.values())
    computed = {module: sum(int(g.compute_ns[g.module == module].sum()) for g in gathers.values()) for module in sizes}
    if share < _NEARLY_ALL or computed[giant] < _NEARLY_ALL * sum(computed.values()):
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
    if saving_ns < max(_error_ns(savings), _NOTABLE * run.mean_rank_step_ns()):
        return []
    wait_ns = statistics.fmean(waits_ns)
    text = (
        f"one FSDP unit ({giant or '<root>'}, {file_size(sizes[giant])}) holds {share:.0%} of the parameters: "
        f"nothing is computed while it is gathered or reduced"
    )
    evidence = {
        "module": giant,
        "share": share,
        "size_bytes": sizes[giant],
        "wait_ns": round(wait_ns),
        "no_replay": "how the unit would be gathered in parts is not recorded",
    }
    return [
        Finding(
            severity="warning",
            text=text,
            cause="transfer",
            time_ns=round(wait_ns),
            action="wrap each block as a unit of its own",
            evidence=evidence,
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
    if len(tiny) < _MANY:
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
    error_ns = _error_ns(savings) + saving_ns * _latency_error_ns(fit) / fit.latency_ns
    best_ns: dict[str, float] = defaultdict(float)
    for forecast in forecasts:
        best_ns[forecast.phase] = max(best_ns[forecast.phase], forecast.saving_ns)
    solved_ns = sum(best_ns.values())
    if saving_ns < max(error_ns, _NOTABLE * run.mean_rank_step_ns()) or solved_ns >= _SOLVED * waiting_ns:
        return []
    text = (
        f"{len(tiny)} FSDP units of {usual_bytes / 1e3:.0f} kB each are too small: {fit.latency_ns / 1e3:.0f} us of "
        f"each all-gather is latency, and compute waits for them"
    )
    evidence = {
        "units": len(tiny),
        "size_bytes": usual_bytes,
        "latency_ns": round(fit.latency_ns),
        "wait_ns": round(waiting_ns),
        "together": together,
        "no_replay": "how units that are wrapped as one would be gathered is not recorded",
    }
    return [
        Finding(
            severity="warning",
            text=text,
            cause="transfer",
            time_ns=round(waiting_ns),
            action=f"wrap {together} of them as one",
            evidence=evidence,
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
    transfers_ns: dict[str, list[int]] = defaultdict(list)
    for rank, of_rank in gathers.items():
        for module, transfer_ns in zip(of_rank.module.tolist(), shortest_ns[rank].tolist(), strict=True):
            transfers_ns[module].append(transfer_ns)
    if max(sizes.values()) < _APART * min(sizes.values()):
        return None
    times_ns = [statistics.median(transfers) for transfers in transfers_ns.values()]
    fit = fit_latency_bandwidth([sizes[module] for module in transfers_ns], times_ns)
    if fit.ns_per_byte < 0 or fit.latency_ns <= 0 or fit.latency_ns < _latency_error_ns(fit):
        return None
    return fit


def _latency_error_ns(fit: LatencyBandwidth) -> float:
    """Return how far the latency may be off, by how far the units' transfers are off the line."""
    return _SIGNIFICANT * math.sqrt(fit.misfit) * fit.latency_error_ns


def _error_ns(savings: Sequence[int]) -> float:
    return _SIGNIFICANT * standard_error(savings)
