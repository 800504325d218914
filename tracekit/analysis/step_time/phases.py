"""What the steps of a run are spent on: loading data, forward, backward, optimizer, or anything else."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from tracekit.analysis.step_time import tables
from tracekit.analysis.step_time.tables import PHASE_SUMS, STEP_PHASES
from tracekit.analysis.table import Frame
from tracekit.findings.finding import Finding
from tracekit.findings.hosts import data_loading
from tracekit.findings.thresholds import NOTABLE_SHARE
from tracekit.model.run import Run
from tracekit.model.summary import RankSummary

_DATA = STEP_PHASES.index("data")
_FAR_ABOVE = 1.25  # times the mean of the ranks

__all__ = ["StepPhases", "step_phases"]


@dataclass(frozen=True, kw_only=True)
class StepPhases:
    """The phases of all ranks.

    Attributes:
        parts: rows of tables.PHASES, sums over the complete steps of each rank.
        by_phase: rows of tables.PHASES_BY_PHASE, means over ranks.
        ranks: rows of tables.PHASE_FACTS.
    """

    parts: Frame = Frame(tables.PHASES)
    by_phase: Frame = Frame(tables.PHASES_BY_PHASE)
    ranks: Frame = Frame(tables.PHASE_FACTS)
    findings: tuple[Finding, ...]


def step_phases(run: Run) -> StepPhases:
    """Return tables over all ranks, and a finding when steps wait for their data."""
    parts = [tables.PHASES.row(part, rank=summary.rank) for summary in run.ranks for part in summary[PHASE_SUMS].parts]
    return StepPhases(
        parts=parts,
        by_phase=_by_phase(run),
        ranks=[_facts(summary) for summary in run.ranks],
        findings=tuple(_data_loading(run)),
    )


def _facts(summary: RankSummary) -> dict[str, object]:
    sums, precision = summary[PHASE_SUMS], summary[PHASE_SUMS].precision
    steps = _complete_steps(summary)
    return tables.PHASE_FACTS.row(
        sums,
        rank=summary.rank,
        steps=steps,
        micro_steps=sums.backward_passes / steps if steps and sums.backward_passes is not None else None,
        autocast=None if precision is None else precision.autocast,
        parameter_dtypes=None if precision is None else precision.parameters,
    )


def _complete_steps(summary: RankSummary) -> int:
    return sum(step.complete for step in summary.steps)


def _by_phase(run: Run) -> list[dict[str, object]]:
    """Rows of the phases that took any time, over the ranks that completed a step."""
    steps = {s.rank: count for s in run.ranks if (count := _complete_steps(s))}
    parts = {s.rank: s[PHASE_SUMS].parts for s in run.ranks if s.rank in steps}
    step_ns = statistics.fmean(_mean_step_ns(s) for s in run.ranks if s.rank in steps) if steps else 0.0
    rows = []
    for i, phase in enumerate(STEP_PHASES):
        mean_ns = {rank: of_rank[i].total_ns / steps[rank] for rank, of_rank in parts.items()}
        if not any(mean_ns.values()):
            continue
        worst = max(mean_ns, key=lambda rank: (mean_ns[rank], -rank))
        means = {
            field: statistics.fmean(getattr(of_rank[i], field) / steps[rank] for rank, of_rank in parts.items())
            for field in ("total_ns", "compute_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns")
        }
        row: dict[str, object] = {"phase": phase, "ranks": len(parts), "share": means["total_ns"] / step_ns, **means}
        rows.append(row | {"worst_rank": worst, "worst_total_ns": mean_ns[worst]})
    return rows


def _mean_step_ns(summary: RankSummary) -> float:
    return sum(part.total_ns for part in summary[PHASE_SUMS].parts) / _complete_steps(summary)


def _mean_exposed_ns(summary: RankSummary) -> float:
    return sum(step.exposed_comm_ns for step in summary.steps if step.complete) / _complete_steps(summary)


def _data_loading(run: Run) -> list[Finding]:
    """Find time in which a rank does nothing but load data."""
    ranks = [summary for summary in run.ranks if _complete_steps(summary)]
    step_ns = {s.rank: _mean_step_ns(s) for s in ranks}
    data_ns = {s.rank: s[PHASE_SUMS].parts[_DATA].total_ns / _complete_steps(s) for s in ranks}
    worst = max(data_ns, key=lambda rank: (data_ns[rank] / step_ns[rank], -rank), default=None)
    if worst is None or data_ns[worst] <= 0:
        return []
    mean_ns = statistics.fmean(data_ns.values())
    share = sum(data_ns.values()) / sum(step_ns.values())
    worst_share = data_ns[worst] / step_ns[worst]
    # The others wait in communication for the rank that loads longest. What they do then is not their own time.
    own_ns = {s.rank: step_ns[s.rank] - _mean_exposed_ns(s) for s in ranks}
    saving_ns = max(own_ns.values()) - max(own_ns[rank] - data_ns[rank] for rank in own_ns)
    evidence = {
        "data_share": share,
        "data_ns": int(mean_ns),
        "worst_data_ns": int(data_ns[worst]),
        "worst_share": worst_share if worst_share > _FAR_ABOVE * share else None,
    }
    return [
        data_loading(
            rank=worst,
            cause="data",
            time_ns=round(mean_ns),
            saving_ns=int(saving_ns),
            evidence=evidence,
            conditions=[NOTABLE_SHARE.reached_by(worst_share)],
            remedy="data",
        )
    ]
