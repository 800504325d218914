"""What explicit prefetching would hide of the all-gathers that FSDP's modules wait for.

Each recorded pass is replayed with the measured times. When module i begins to compute, the all-gathers of the next
`ahead` modules are issued; then it computes for its span. All-gathers, and the reductions on their stream, run one
after the other.

    compute    |== i ==|= i+1 =|          an all-gather takes as long as on the rank where it was shortest:
    stream     |AG i+1 |AG i+2 |RS i|     the rest is waiting for late ranks, which no prefetching hides

The first module of a pass has nothing before it to hide under. No module is predicted to wait longer than it did.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tracekit.explain.configuration import value_of
from tracekit.explain.fsdp.tables import FSDP_GATHERS, FsdpGathers
from tracekit.explain.section import Unavailable
from tracekit.explain.step_time.step_lengths import savings_ns
from tracekit.findings.finding import Finding
from tracekit.findings.fsdp import late_gathers
from tracekit.model.events import ABSENT, Int64
from tracekit.model.metadata import SettingValue
from tracekit.model.run import Run
from tracekit.rank.phases import PHASES
from tracekit.stats.grouped import grouped
from tracekit.stats.uncertainty import saving_conditions, standard_error

_AHEAD = (1, 2)
_PASSES = ("forward", "backward")
_AS_GOOD = 0.9  # of the saving with more modules ahead
_SETTINGS = {
    ("fsdp2", "forward"): "set_modules_to_forward_prefetch",
    ("fsdp2", "backward"): "set_modules_to_backward_prefetch",
    ("fsdp1", "forward"): "forward_prefetch=True",
    ("fsdp1", "backward"): "backward_prefetch=BackwardPrefetch.BACKWARD_PRE",
    ("zero3", "forward"): "a larger stage3_prefetch_bucket_size",
    ("zero3", "backward"): "a larger stage3_prefetch_bucket_size",
}
_SLUGS = ("fsdp2", "fsdp1", "zero3")
# Settings of FSDP1 that have all modules prefetch already.
_SET = {"forward": ("forward_prefetch", True), "backward": ("backward_prefetch", "BACKWARD_PRE")}


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What prefetching does in one phase, means over steps.

    Attributes:
        asked_ahead: how many modules ahead all-gathers are issued now.
        ahead: how many modules ahead they would be issued.
        wait_ns: how long modules wait for their all-gathers now, mean over ranks.
        predicted_wait_ns: how long they would wait.
        saving_ns: how much shorter the slowest rank's step would be.
        error_ns: of the saving; None: one step.
        memory_bytes: memory that the parameters take that are gathered ahead; None: sizes are not known.
        modules: those that wait, the longest first.
    """

    phase: str
    asked_ahead: int
    ahead: int
    wait_ns: float
    predicted_wait_ns: float
    saving_ns: float
    error_ns: float | None
    memory_bytes: int | None
    modules: tuple[str, ...]


def prefetch_forecasts(run: Run) -> list[Forecast]:
    """Return forecasts by phase and number of modules ahead; empty where no waits were measured."""
    gathers = gathers_of_gpus(run)
    shortest = shortest_transfers_ns(gathers)
    several = (1,) if "fsdp1" in run.strategies else _AHEAD  # FSDP1 cannot prefetch more
    result = []
    for phase in _PASSES:
        passes = {
            (rank, step): np.flatnonzero((of_rank.step == step) & (of_rank.phase == PHASES.index(phase)))
            for rank, of_rank in gathers.items()
            for step in sorted(run.common_steps())
        }
        passes = {key: rows for key, rows in passes.items() if len(rows) > 1}
        if passes:
            asked = statistics.median_low(
                [ahead for (rank, _), rows in passes.items() for ahead in gathers[rank].ahead[rows[1:]].tolist()]
            )
            result += [
                _forecast(run, phase, asked, ahead, gathers, shortest, passes) for ahead in several if ahead > asked
            ]
    return result


def gathers_of_gpus(run: Run) -> dict[int, FsdpGathers]:
    """Return the all-gathers of each GPU rank that has any. Those of a CPU rank block it, and nothing hides them."""
    return {s.rank: s[FSDP_GATHERS] for s in run.ranks if s.device == "gpu" and len(s[FSDP_GATHERS])}


def shortest_transfers_ns(gathers: Mapping[int, FsdpGathers]) -> dict[int, Int64]:
    """Return for each rank's all-gathers how long each took on the rank where it was shortest: int64 [n]."""
    keys: dict[int, list[tuple[int, int, str, int]]] = {}
    shortest: dict[tuple[int, int, str, int], int] = {}
    for rank, of_rank in gathers.items():
        seen: Counter[tuple[int, int, str]] = Counter()
        keys[rank] = []
        columns = (of_rank.step.tolist(), of_rank.phase.tolist(), of_rank.module.tolist(), of_rank.transfer_ns.tolist())
        for step, phase, module, transfer_ns in zip(*columns, strict=True):
            key = (step, phase, module, seen[step, phase, module])
            seen[step, phase, module] += 1
            keys[rank].append(key)
            shortest[key] = min(transfer_ns, shortest.get(key, transfer_ns))
    return {rank: np.array([shortest[key] for key in of_rank], dtype=np.int64) for rank, of_rank in keys.items()}


def predicted_waits_ns(gathers: FsdpGathers, transfer_ns: Int64, ahead: int) -> Int64:
    """Return how long each module of one pass, in order of use, would wait for its all-gather: int64 [n]."""
    wait_ns = gathers.wait_ns.copy()
    late_ns = np.clip(gathers.transfer_ns - transfer_ns, 0, wait_ns)
    begin_ns = ready_ns = free_ns = 0
    arrival_ns = [0]  # of each module's parameters, from the beginning of the first one's compute
    for i in range(len(gathers) - 1):
        if i:  # what was issued as module i - 1 ended
            free_ns = max(free_ns, ready_ns) + int(gathers.busy_ns[i - 1])
        while len(arrival_ns) <= min(i + ahead, len(gathers) - 1):
            free_ns = max(free_ns, begin_ns) + int(transfer_ns[len(arrival_ns)])
            arrival_ns.append(free_ns)
        ready_ns = begin_ns + int(gathers.span_ns[i])
        left_ns = late_ns[i + 1] + max(arrival_ns[i + 1] - ready_ns, 0)
        wait_ns[i + 1] = min(wait_ns[i + 1], left_ns)
        begin_ns = ready_ns + int(wait_ns[i + 1])
    return wait_ns


def _stream_idle_ns(gathers: FsdpGathers, transfer_ns: Int64) -> int:
    """Return how long the stream is idle in a pass, from where its second module could be asked for.

    The last reduction ends the pass. So no prefetching can save more than this. There is no such limit for a pass that
    is followed by another.
    """
    if gathers.drain_ns[-1] == ABSENT:
        return int(np.iinfo(np.int64).max)
    length_ns = int(gathers.span_ns[:-1].sum() + gathers.wait_ns[1:].sum() + gathers.drain_ns[-1])
    return max(length_ns - int(transfer_ns[1:].sum() + gathers.busy_ns.sum()), 0)


def _forecast(
    run: Run,
    phase: str,
    asked_ahead: int,
    ahead: int,
    gathers: Mapping[int, FsdpGathers],
    shortest_ns: Mapping[int, Int64],
    passes: Mapping[tuple[int, int], Int64],
) -> Forecast:
    waits, predictions = [], []
    hidden_ns: dict[tuple[int, int], int] = {}
    by_module: Counter[str] = Counter()
    for (rank, step), rows in passes.items():
        in_pass = gathers[rank].rows(rows)
        predicted_ns = predicted_waits_ns(in_pass, shortest_ns[rank][rows], ahead)
        waits.append(int(in_pass.wait_ns.sum()))
        hidden_ns[rank, step] = min(
            waits[-1] - int(predicted_ns.sum()), _stream_idle_ns(in_pass, shortest_ns[rank][rows])
        )
        predictions.append(waits[-1] - hidden_ns[rank, step])
        by_module.update(dict(zip(in_pass.module.tolist(), in_pass.wait_ns.tolist(), strict=True)))
    savings = savings_ns(run, hidden_ns)
    error_ns = standard_error(savings) if len(savings) > 1 else None
    # All modules that are gathered ahead of their use are in memory at once.
    sizes = [int(size) for in_pass in gathers.values() for size in in_pass.size_bytes]
    return Forecast(
        phase=phase,
        asked_ahead=asked_ahead,
        ahead=ahead,
        wait_ns=statistics.fmean(waits),
        predicted_wait_ns=statistics.fmean(predictions),
        saving_ns=statistics.fmean(savings),
        error_ns=error_ns,
        memory_bytes=None if ABSENT in sizes else ahead * max(sizes),
        modules=tuple(module for module, wait_ns in by_module.most_common() if wait_ns),
    )


def prefetch_findings(run: Run, forecasts: Sequence[Forecast]) -> list[Finding]:
    """Return a finding for each phase in which prefetching saves a significant part of the step."""
    findings = []
    step_ns = run.mean_rank_step_ns()
    for phase, several in grouped((forecast.phase, forecast) for forecast in forecasts).items():
        best_ns = max(forecast.saving_ns for forecast in several)
        chosen = next(forecast for forecast in several if forecast.saving_ns >= _AS_GOOD * best_ns)
        if _is_set(run, phase):
            continue
        if chosen.error_ns is None or not chosen.modules:
            continue
        option, present = _option(run, phase)
        findings.append(
            late_gathers(
                cause="transfer",
                saving_ns=round(chosen.saving_ns),
                saving_error_ns=round(chosen.error_ns),
                time_ns=round(chosen.wait_ns),
                evidence={
                    "phase": phase,
                    "modules": list(chosen.modules),
                    "asked_ahead": chosen.asked_ahead,
                    "modules_ahead": chosen.ahead,
                    "wait_ns": round(chosen.wait_ns),
                    "predicted_wait_ns": round(chosen.predicted_wait_ns),
                    "memory_bytes": chosen.memory_bytes,
                    "option": option,
                    "present": present,
                },
                conditions=saving_conditions(chosen.saving_ns, chosen.error_ns, step_ns),
            )
        )
    return findings


def _is_set(run: Run, phase: str) -> bool:
    """Return whether FSDP1 is told to prefetch in this phase already, so that something else is in its way."""
    setting, value = _SET[phase]
    return "fsdp1" in run.strategies and value_of(run, "fsdp1", setting) == value


def _option(run: Run, phase: str) -> tuple[str, SettingValue | None]:
    """Return what is to be set, and its value now; None where that is not known."""
    option = next((_SETTINGS[slug, phase] for slug in _SLUGS if slug in run.strategies), "prefetching")
    now = value_of(run, "fsdp1", _SET[phase][0]) if "fsdp1" in run.strategies else None
    return option, None if isinstance(now, Unavailable) else now
