"""What recording cost, in a line. Comes in: a run. Goes out: text; none for traces of other tools."""

from __future__ import annotations

from tracekit.analysis.step_time.overhead import capture_overhead
from tracekit.model.run import Run
from tracekit.render.quantities import milliseconds

__all__ = ["overhead_text"]


def overhead_text(run: Run) -> str | None:
    cost = capture_overhead(run)
    if cost is not None:
        share = f"{cost.ratio:.1%}" if cost.ratio < 0.995 else f"{cost.ratio:.0%}"
        where = f", most on rank {cost.rank}" if len(run.ranks) > 1 else ""
        # What the driver's own records of a GPU's work cost is not known.
        about = "at least" if run.device != "cpu" else "about"
        return f"recording cost {about} {milliseconds(cost.per_step_ns)} ms a step ({share}){where}"
    recorded = any(summary.run_id is not None for summary in run.ranks)
    return "what recording cost was not measured" if recorded else None
