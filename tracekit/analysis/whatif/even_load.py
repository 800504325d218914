"""How long the work of experts, and the exchanges of their tokens, would take if all ranks had the same load.

The load of a rank is what an exchange brings to it: bytes, or an estimate where no sizes are known. If the work behind
it lasts longer the more it brings, the work is taken to grow with it: by the slope of a line through the deviations
from the mean of the ranks that exchange. An exchange takes as long as its busiest rank, so that it changes by the ratio
of the mean to the largest amount.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from tracekit.analysis.model_parallel.imbalance import HIGHEST_RATIO, LEAST_OVERLOAD
from tracekit.analysis.replay.operation_graph import GraphSteps, OperationGraph
from tracekit.analysis.whatif.peer_levels import with_limits
from tracekit.model.events import Bool, Float64, Int64

__all__ = ["EvenLoad", "even_load"]

_EXPLAINED = 0.5  # of the variance of the work that its load explains
_UNEVEN = 1.1  # times the mean: with less there is nothing to even out


@dataclass(frozen=True, kw_only=True, eq=False)
class EvenLoad:
    """What changes with even loads.

    Attributes:
        durations: float64 [n, k] of each group of steps.
        rank: the rank that has much more load than the others, None without one.
        ratio: its load by the mean of the ranks that it exchanges with, `HIGHEST_RATIO` at most.
        estimated: whether a load is estimated from how long experts compute.
    """

    durations: list[Float64]
    rank: int | None
    ratio: float
    estimated: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class _Loads:
    """The exchanges of a group of steps whose load decides how long the work behind them takes.

    Attributes:
        rows: of the exchanges, int64 [x].
        number: of the exchange over all its ranks, int64 [x].
        mean: that the ranks of each exchange receive, float64 [x].
        others: that those of them receive that are not this one, on average, float64 [x].
        largest: that one of them sends or receives, float64 [x].
    """

    rows: Int64
    number: Int64
    mean: Float64
    others: Float64
    largest: Float64


def even_load(graph: OperationGraph) -> EvenLoad | None:
    """Return the durations with even loads; None where no work depends on uneven exchanges."""
    loads = [_loads(group) for group in graph.step_groups]
    slopes = _slopes(graph, loads)
    result, changed, estimated = [], False, False
    received, by_others = Counter[int](), Counter[int]()
    for group, of_group in zip(graph.step_groups, loads, strict=True):
        exchanges = group.exchanges.rows(of_group.rows)
        duration_ns, task_ns = group.duration_ns.copy(), group.task_ns.copy()
        classes = group.comparison_class[exchanges.task]
        slope = np.array([slopes.get(number, 0.0) for number in classes.tolist()])
        beyond = exchanges.received - of_group.mean
        for_experts = slope > 0
        evened = np.maximum(task_ns[exchanges.task] - (slope * beyond)[:, None], 0.0)
        task_ns[exchanges.task[for_experts]] = evened[for_experts]
        shorter = of_group.mean / np.maximum(of_group.largest, 1.0)
        duration_ns = group.with_task_times(with_limits(group, task_ns))
        duration_ns[exchanges.operation] *= np.minimum(shorter, 1.0)[:, None]
        uneven = for_experts & (of_group.largest > _UNEVEN * of_group.mean)
        changed |= bool(uneven.any())
        estimated |= bool((uneven & exchanges.estimated).any())
        ranks = group.rank[exchanges.operation[for_experts]]
        _count(received, ranks, exchanges.received[for_experts])
        _count(by_others, ranks, of_group.others[for_experts])
        result.append(duration_ns)
    if not changed:
        return None
    hottest, times = _hottest(received, by_others)
    return EvenLoad(durations=result, rank=hottest, ratio=times, estimated=estimated)


def _loads(group: GraphSteps) -> _Loads:
    exchanges = group.exchanges
    rows = np.flatnonzero((exchanges.group >= 0) & (exchanges.received >= 0))
    _, number, counts = np.unique(exchanges.group[rows], return_inverse=True, return_counts=True)
    rows = rows[counts[number] > 1]  # a rank that is alone, as the others are missing, has none to even out with
    _, number, counts = np.unique(exchanges.group[rows], return_inverse=True, return_counts=True)
    mean = np.bincount(number, exchanges.received[rows], len(counts)) / np.maximum(counts, 1)
    largest = np.zeros(len(counts))
    busiest = np.maximum(exchanges.sent[rows], exchanges.received[rows])
    np.maximum.at(largest, number, busiest.astype(np.float64))
    others = (mean * counts)[number] - exchanges.received[rows]
    return _Loads(
        rows=rows,
        number=number,
        mean=mean[number],
        others=others / np.maximum(counts[number] - 1, 1),
        largest=largest[number],
    )


def _slopes(graph: OperationGraph, loads: list[_Loads]) -> dict[int, float]:
    """Return by comparison class how many ns of work a byte more takes, for those whose work depends on the load."""
    classes, beyond, longer_ns = [], [], []
    for group, of_group in zip(graph.step_groups, loads, strict=True):
        exchanges = group.exchanges.rows(of_group.rows)
        task_ns = group.task_ns[exchanges.task].mean(axis=1)
        counts = np.bincount(of_group.number)
        mean_ns = np.bincount(of_group.number, task_ns) / np.maximum(counts, 1)
        classes.append(group.comparison_class[exchanges.task])
        beyond.append(exchanges.received - of_group.mean)
        longer_ns.append(task_ns - mean_ns[of_group.number])
    label, x, y = np.concatenate(classes), np.concatenate(beyond), np.concatenate(longer_ns)
    if not len(label):
        return {}
    xy, xx, yy = (np.bincount(label, product) for product in (x * y, x * x, y * y))
    depends: Bool = (xy > 0) & (xy * xy >= _EXPLAINED * xx * yy)
    return {number: float(xy[number] / xx[number]) for number in np.flatnonzero(depends).tolist()}


def _count(total: Counter[int], ranks: Int64, amounts: Int64 | Float64) -> None:
    """Add amounts of ranks, [x] both, to their totals, in whole numbers."""
    for rank in np.unique(ranks).tolist():
        total[rank] += round(float(amounts[ranks == rank].sum()))


def _hottest(received: Counter[int], by_others: Counter[int]) -> tuple[int | None, float]:
    """Return the rank with the most by what the others get, and that ratio; no rank if it is not much."""
    ratios = {rank: _ratio(amount, by_others[rank]) for rank, amount in received.items()}
    hottest = max(ratios, key=lambda rank: (ratios[rank], received[rank], -rank))
    return (hottest if ratios[hottest] >= LEAST_OVERLOAD else None), ratios[hottest]


def _ratio(amount: int, of_others: int) -> float:
    """Return a load by that of the others, `HIGHEST_RATIO` at most."""
    if not of_others:
        return HIGHEST_RATIO if amount else 1.0
    return min(amount / of_others, HIGHEST_RATIO)
