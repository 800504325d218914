"""What ranks exchange in kernels that name no sizes, estimated from how long the experts of each rank compute."""

from __future__ import annotations

import numpy as np

from tracekit.analysis.model_parallel.expert_compute import ExpertCompute, expert_computes
from tracekit.analysis.model_parallel.imbalance import LEAST_OVERLOAD, most_loaded
from tracekit.model.collectives import MatchedGroup
from tracekit.model.events import ABSENT, Float64, Int64
from tracekit.model.run import Run

__all__ = ["estimated_amounts"]


def estimated_amounts(run: Run) -> dict[int, tuple[Int64, Int64]]:
    """Return what each of k ranks sends and receives in each of m instances of a group, int64 [k, m], by group.

    They are ns that experts compute (`ExpertCompute.load_ns`), or -1 where not known. There are groups only in which a
    rank's experts clearly have more load than the others'.

    A rank dispatches its own tokens, as many as the others, and receives the load of its experts. On the way back it is
    the reverse.
    """
    matched = {group.group: group for group in run.collectives}
    return {
        compute.group: _amounts(compute, matched[compute.group])
        for compute in expert_computes(run)
        if not compute.has_sizes and _is_uneven(compute)
    }


def _is_uneven(compute: ExpertCompute) -> bool:
    most = most_loaded(compute.by_rank_and_step(compute.load_ns), LEAST_OVERLOAD)
    return most is not None and most.significant


def _amounts(compute: ExpertCompute, matched: MatchedGroup) -> tuple[Int64, Int64]:
    usual_ns = _usual_load_ns(compute)[:, compute.pair]
    load_ns = np.rint(usual_ns).astype(np.int64)
    mean_ns = np.rint(usual_ns.mean(axis=0)).astype(np.int64)
    sent, received = np.full((2, *matched.row.shape), ABSENT, dtype=np.int64)
    sent[:, compute.exchanges] = np.where(compute.takes_back, load_ns, mean_ns)
    received[:, compute.exchanges] = np.where(compute.takes_back, mean_ns, load_ns)
    return sent, received


def _usual_load_ns(compute: ExpertCompute) -> Float64:
    """Return the load of each rank, float64 [k, p]: the mean over steps of the pairs at the same place of each.

    A layer with a hot expert has it in all steps. The largest load of a single step would be that of the longest kernel
    by chance.
    """
    _, counts = np.unique(compute.step, return_counts=True)
    if len(set(counts.tolist())) > 1:
        return np.broadcast_to(compute.load_ns.mean(axis=1, keepdims=True), compute.load_ns.shape)
    by_step = compute.load_ns.reshape(len(compute.load_ns), len(counts), -1)
    return np.broadcast_to(by_step.mean(axis=1, keepdims=True), by_step.shape).reshape(compute.load_ns.shape)
