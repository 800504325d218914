"""The cost of recording, in one line."""

from __future__ import annotations

from tracekit.analysis.step_time.overhead import capture_overhead
from tracekit.model.quantities import milliseconds
from tracekit.model.run import Run

__all__ = ["overhead_text"]


def overhead_text(run: Run) -> str | None:
    """Return what recording cost; None for traces of other tools."""
    cost = capture_overhead(run)
    if cost is not None:
        share = f"{cost.ratio:.1%}" if cost.ratio < 0.995 else f"{cost.ratio:.0%}"
        where = f", most on rank {cost.rank}" if len(run.ranks) > 1 else ""
        # On a GPU the cost of the driver's tracing is unknown.
        about = "at least" if run.device != "cpu" else "about"
        return f"recording cost {about} {milliseconds(cost.per_step_ns)} ms a step ({share}){where}"
    recorded = any(summary.run_id is not None for summary in run.ranks)
    return "what recording cost was not measured" if recorded else None
