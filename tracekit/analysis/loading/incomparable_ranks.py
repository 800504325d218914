"""Which ranks cannot be compared with the others of their run, as their clocks contradict those of most ranks.

They become checks of `analysis.health`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tracekit.analysis.clocks.jumping import RankJump, jumping_clocks
from tracekit.analysis.clocks.notes import jump_text
from tracekit.analysis.clocks.rates import odd_rates
from tracekit.analysis.health.run_checks import Reason, usual_steps
from tracekit.model.run import Run

__all__ = ["incomparable_in_run"]


def incomparable_in_run(run: Run, wrong: Mapping[int, Collection[int]]) -> dict[int, Reason]:
    """Return the ranks that cannot be compared, as what they share with the others shows.

    wrong: steps whose times are known to be wrong, by rank.
    """
    jumps = jumping_clocks(run.ranks, run.clocks)
    rates = odd_rates(run.ranks, run.collectives, run.messages)
    if rates:
        return {rank: _jumping(jumps[rank]) if rank in jumps else _of_other_rate(rate) for rank, rate in rates.items()}
    ranks = [summary for summary in run.ranks if summary.is_measured]
    counting = {
        summary.rank: {step.step for step in summary.steps if step.complete}.difference(wrong.get(summary.rank, ()))
        for summary in ranks
    }
    usual = usual_steps(counting.values())
    without = [rank for rank in wrong if usual and rank in counting and not counting[rank] & usual]
    text = "what it exchanges with other ranks shows that the times of each of its steps are wrong"
    return {rank: _jumping(jumps[rank]) if rank in jumps else Reason("step_mismatch", text) for rank in without}


def _jumping(jumps: Sequence[RankJump]) -> Reason:
    return Reason("clock_step", f"{jump_text(jumps)}, which leaves none of its steps right")


def _of_other_rate(rate: float) -> Reason:
    as_if = "as if its clock ran at another rate, or it were of another job"
    return Reason("clock_drift", f"its times are {rate:.3g} times those of the other ranks, {as_if}")
