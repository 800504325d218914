"""What recording cost the steps that it recorded, as each rank measured it."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from tracekit.analysis.step_time.tables import RECORDING_COST
from tracekit.findings.finding import Finding
from tracekit.findings.steps import recording_overhead
from tracekit.findings.thresholds import OVERHEAD_RATIO
from tracekit.model.run import Run
from tracekit.model.summary import RankSummary

__all__ = ["CaptureOverhead", "capture_overhead", "overhead_findings"]


@dataclass(frozen=True, kw_only=True)
class CaptureOverhead:
    """The cost on `rank`, the one with the largest ratio of cost to mean step.

    Attributes:
        options: options of torch.profiler that were on.
    """

    rank: int
    per_step_ns: int
    ratio: float
    options: tuple[str, ...]


def capture_overhead(run: Run) -> CaptureOverhead | None:
    """Return the largest cost; None if no rank measured it."""
    costs = [cost for summary in run.ranks if (cost := _cost(summary)) is not None]
    return max(costs, key=lambda cost: cost.ratio, default=None)


def overhead_findings(run: Run) -> list[Finding]:
    cost = capture_overhead(run)
    if cost is None:
        return []
    return [
        recording_overhead(
            cause="recording",
            time_ns=cost.per_step_ns,
            evidence={
                "rank": cost.rank,
                "per_step_ns": cost.per_step_ns,
                "ratio": cost.ratio,
                "options": list(cost.options),
            },
            conditions=[OVERHEAD_RATIO.reached_by(cost.ratio)],
        )
    ]


def _cost(summary: RankSummary) -> CaptureOverhead | None:
    steps_ns = [step.step_ns for step in summary.steps if step.complete]
    cost = summary[RECORDING_COST]
    if cost is None or not any(steps_ns):
        return None
    return CaptureOverhead(
        rank=summary.rank,
        per_step_ns=cost.per_step_ns,
        ratio=cost.per_step_ns / statistics.mean(steps_ns),
        options=cost.options,
    )
