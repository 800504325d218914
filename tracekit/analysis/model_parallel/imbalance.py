"""Which rank of a group has the highest load, and whether that is more than what steps differ by."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from tracekit.analysis.stats.uncertainty import least_significant

__all__ = ["HIGHEST_RATIO", "LEAST_OVERLOAD", "Imbalance", "Load", "most_loaded", "over_modules"]

LEAST_OVERLOAD = 1.03  # times the load of the others, of a rank that is named for it
HIGHEST_RATIO = 100.0  # times the others', or more: a router that has collapsed
_PERSISTENT = 0.8  # of the steps

Load = dict[int, dict[int, int]]
"""By rank and step: bytes, or ns of compute."""


@dataclass(frozen=True, kw_only=True)
class Imbalance:
    """The rank with the highest load.

    Attributes:
        ratio: its load by the mean of the other ranks, mean over steps.
        noise: standard deviation of the ratio from step to step.
        significant: whether the ratio is as high as asked for, beyond its noise, and in nearly all steps.
    """

    rank: int
    ratio: float
    noise: float
    significant: bool


def most_loaded(load: Load, least: float) -> Imbalance | None:
    """Return the rank with the highest load; None where there is no other rank, or no load.

    least: times the load of the others, for which it is significant.
    """
    common = sorted(frozenset.intersection(*(frozenset(steps) for steps in load.values())))
    if len(load) < 2 or not common:
        return None
    total = {rank: sum(steps[step] for step in common) for rank, steps in load.items()}
    rank = max(total, key=lambda rank: (total[rank], -rank))
    others = {step: sum(load[r][step] for r in load if r != rank) / (len(load) - 1) for step in common}
    some = [step for step in common if load[rank][step] or others[step]]
    ratios = [min(load[rank][step] / others[step], HIGHEST_RATIO) if others[step] else HIGHEST_RATIO for step in some]
    if not ratios:
        return None
    ratio = statistics.fmean(ratios)
    noise = statistics.stdev(ratios) if len(ratios) > 1 else 0.0
    persistence = sum(value > 1 for value in ratios) / len(ratios)
    significant = (
        len(ratios) > 1
        and ratio >= least
        and persistence >= _PERSISTENT
        and ratio - 1 > least_significant(noise, len(ratios))
    )
    return Imbalance(rank=rank, ratio=ratio, noise=noise, significant=significant)


def over_modules(loads: Sequence[Load]) -> Load:
    """Return the sums over modules."""
    total: Load = {}
    for load in loads:
        for rank, steps in load.items():
            of_rank = total.setdefault(rank, {})
            for step, size in steps.items():
                of_rank[step] = of_rank.get(step, 0) + size
    return total
