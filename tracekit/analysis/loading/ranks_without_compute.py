"""Which GPU ranks ran the operators of other ranks, but have none of their compute kernels: these are lost.

With their launches lost, too, only the other ranks tell. The rank would seem to communicate alone, and to be idle.
"""

from __future__ import annotations

from collections.abc import Sequence

from tracekit.analysis.kernels.parts import OPERATOR_TIMES
from tracekit.analysis.timeline.completeness.lost_compute import UPDATES
from tracekit.model.summary import RankSummary

_UNEQUAL_SHARE = 0.01  # of the calls of operators: ranks that take other turns run others

__all__ = ["ranks_without_compute"]


def ranks_without_compute(ranks: Sequence[RankSummary]) -> dict[int, str]:
    """Return the reason for each rank without compute in any complete step, that ran the operators of one with compute.

    Most GPU ranks must compute in each complete step. The rank must have updated parameters, as an empty batch needs no
    kernels. Nothing is known if operators are not summed.
    """
    on_gpu = [s for s in ranks if s.device == "gpu" and any(step.complete for step in s.steps)]
    without = [s for s in on_gpu if not any(step.compute_ns for step in s.steps if step.complete)]
    computing = [s for s in on_gpu if all(step.compute_ns for step in s.steps if step.complete)]
    if not without or 2 * len(computing) <= len(on_gpu):
        return {}
    of_computing = [_calls_a_step(summary) for summary in computing]
    calls_of = {summary.rank: _calls_a_step(summary) for summary in without}
    reason = "it ran the operators of other ranks, and none of their compute kernels is recorded"
    return {
        rank: reason
        for rank, calls in calls_of.items()
        if any(name.startswith(UPDATES) for name in calls) and any(_are_equal(calls, others) for others in of_computing)
    }


def _calls_a_step(summary: RankSummary) -> dict[str, float]:
    """Return how often a rank calls each operator in a step; nothing if that is not known."""
    times = summary.parts.get(OPERATOR_TIMES.name)
    if times is None or not times.steps:
        return {}
    counts = zip(times.sums.name.tolist(), times.sums.count.tolist(), strict=True)
    return {name: count / times.steps for name, count in counts}


def _are_equal(calls: dict[str, float], others: dict[str, float]) -> bool:
    """Return whether two ranks call operators equally often. Of each, only those that take the most time are known."""
    common = calls.keys() & others.keys()
    known = sum(others[name] for name in common)
    apart = sum(abs(calls[name] - others[name]) for name in common)
    return 2 * known > max(sum(calls.values()), sum(others.values())) and apart <= _UNEQUAL_SHARE * known
