"""Which ranks compute longer because their experts have more tokens, not because they are slow.

A rank may be slow as well. What its experts' load explains is compared with what its pace explains (`expert_compute`):
the larger is the reason.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tracekit.analysis.model_parallel.expert_compute import ExpertCompute, expert_computes
from tracekit.analysis.model_parallel.expert_load import received_bytes
from tracekit.analysis.model_parallel.imbalance import LEAST_OVERLOAD, most_loaded, over_modules
from tracekit.model.run import Run

__all__ = ["Overload", "overloaded_ranks"]

_OVERLOADED = 1.2  # times the load of the others, where it is not known what the experts compute
_EXPLAINED = 0.5  # of how much longer the experts compute: received bytes explain as much, or something else does


@dataclass(frozen=True, kw_only=True)
class Overload:
    """The load of a rank's experts.

    Attributes:
        ratio: times the mean of the other ranks of its group.
        estimated: whether that is from how long the experts compute, as no sizes are known.
        others: the other ranks of its group: what it gets more, they get less.
        longer_ns: how much longer they compute a step than those of the other ranks; None where that is not known.
    """

    ratio: float
    estimated: bool
    others: tuple[int, ...]
    longer_ns: float | None


def overloaded_ranks(run: Run) -> dict[int, Overload]:
    """Return the rank of each group whose experts have the most load, if that adds more to its compute than its pace.

    A smaller load counts here than in a finding of its own, for it only explains why a rank computes longer.
    """
    result: dict[int, Overload] = {}
    received = {group: over_modules(list(modules.values())) for group, modules in received_bytes(run).items()}
    for compute in expert_computes(run):
        load = received.pop(run.groups[compute.group], None)
        by_time = most_loaded(compute.by_rank_and_step(compute.load_ns), LEAST_OVERLOAD)
        if by_time is None or not by_time.significant:
            continue
        most = by_time if load is None else most_loaded(load, LEAST_OVERLOAD)
        if most is None or not most.significant or most.rank != by_time.rank:
            continue
        by_load_ns, by_pace_ns = _longer_ns(run, compute, most.rank)
        if by_load_ns > by_pace_ns and most.ratio - 1 >= _EXPLAINED * (by_time.ratio - 1):
            others = _without(most.rank, compute.ranks.tolist())
            result[most.rank] = Overload(ratio=most.ratio, estimated=load is None, others=others, longer_ns=by_load_ns)
    for load in received.values():
        most = most_loaded(load, _OVERLOADED)
        if most is not None and most.significant:
            others = _without(most.rank, load)
            result[most.rank] = Overload(ratio=most.ratio, estimated=False, others=others, longer_ns=None)
    return result


def _without(rank: int, ranks: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(other for other in ranks if other != rank))


def _longer_ns(run: Run, compute: ExpertCompute, rank: int) -> tuple[float, float]:
    """Return how much longer a rank computes a step than the others of its group: by its load, and by its pace."""
    others = compute.ranks != rank
    place = int(np.flatnonzero(~others)[0])
    steps = np.unique(compute.step)
    load_ns = compute.load_ns.sum(axis=1) / len(steps)
    counted, members = frozenset(steps.tolist()), frozenset(compute.ranks[others].tolist())
    computed_ns = [
        sum(step.compute_ns for step in summary.steps if step.step in counted) / len(steps)
        for summary in run.ranks
        if summary.rank in members
    ]
    slower = compute.pace[place] / float(np.median(compute.pace[others])) - 1
    return float(load_ns[place] - load_ns[others].mean()), float(slower * np.median(computed_ns))
