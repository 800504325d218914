"""The all-gathers of one rank in one step, in the order in which FSDP's modules are used: what hides each of them."""

from __future__ import annotations

import numpy as np

from tracekit.analysis.events.phases import PHASES
from tracekit.analysis.fsdp.parts import FSDP_GATHERS
from tracekit.analysis.report import Report
from tracekit.analysis.step_time.step_lengths import typical_step
from tracekit.render.page.chart_contract import FsdpLadder

__all__ = ["fsdp_ladder"]


def fsdp_ladder(report: Report) -> FsdpLadder | None:
    """Return the step of median length on the rank that waits longest for its gathers; None without gathers."""
    step = typical_step(report.run)
    ladders = [
        (s.rank, s[FSDP_GATHERS].rows(s[FSDP_GATHERS].step == step))
        for s in report.run.ranks
        if FSDP_GATHERS.name in s.parts  # not where only other sections were asked for
    ]
    rank, gathers = max(ladders, key=lambda ladder: int(ladder[1].wait_ns.sum()), default=(0, None))
    if step is None or gathers is None or not len(gathers):
        return None
    return FsdpLadder(
        rank=rank,
        step=step,
        module=gathers.module.tolist(),
        phase=[PHASES[phase] if phase >= 0 else None for phase in gathers.phase.tolist()],
        ahead=gathers.ahead.tolist(),
        transfer_ns=gathers.transfer_ns.tolist(),
        wait_ns=gathers.wait_ns.tolist(),
        compute_before_ns=[None, *np.maximum(gathers.compute_ns[:-1], 0).tolist()],
    )
