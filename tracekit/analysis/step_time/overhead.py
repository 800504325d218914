"""What recording cost the steps that it recorded, as each rank measured it."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from tracekit.analysis.finding import Finding
from tracekit.analysis.step_time.parts import RECORDING_COST
from tracekit.model.run import Run
from tracekit.model.summary import RankSummary

_MOST_RATIO = 0.1  # of a step: with more, short operations look longer than they are
# The profiler's options, the most expensive first, and the probe's names of them. FLOPs are counted from the shapes.
_ADVICE = {
    "with_stack": "stack=False",
    "profile_memory": "memory=False",
    "with_flops": "flops=False",
    "record_shapes": "shapes=False",
}

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
    if cost is None or cost.ratio <= _MOST_RATIO:
        return []
    advice = [text for option, text in _ADVICE.items() if option in cost.options]
    text = f"recording cost {cost.ratio:.0%} of the step on rank {cost.rank}: times of short operations are inflated"
    action = f"record with {', '.join(advice)}" if advice else None
    evidence = {"rank": cost.rank, "per_step_ns": cost.per_step_ns, "ratio": cost.ratio, "options": list(cost.options)}
    return [
        Finding(
            severity="warning", text=text, cause="recording", time_ns=cost.per_step_ns, action=action, evidence=evidence
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
