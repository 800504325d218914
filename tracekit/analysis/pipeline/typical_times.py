"""How long a pipeline's actions and transfers typically take, by kind and stage.

Means of equal stages differ by chance, too. How much they do is told by the means of single steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracekit.analysis.pipeline.steps import ActionOrder
from tracekit.analysis.pipeline.transfers import Edges, Transfers
from tracekit.model.events import Float64, Int32, Int64
from tracekit.model.spans import ACTION_KINDS

_STANDARD_ERRORS = 4  # of a mean: a stage that differs from the median one by less is like it

__all__ = ["TypicalTimes", "typical_times"]


@dataclass(frozen=True, kw_only=True, eq=False)
class TypicalTimes:
    """Typical times of a pipeline's steps, in ns.

    Attributes:
        of_kind: float64 [kinds], mean of the actions; NaN without any.
        of_stage: float64 [kinds, stages], mean of the actions; NaN without any.
        beyond_chance: float64 [kinds, stages], likewise, but the same for stages that differ by chance only.
        of_edge: median transfer by sending and receiving stage.
        any_edge_ns: median over all transfers.
    """

    of_kind: Float64
    of_stage: Float64
    beyond_chance: Float64
    of_edge: dict[tuple[int, int], float]
    any_edge_ns: float

    def of_edges(self, stage: Int32, edges: Edges) -> Float64:
        """Return the typical transfer of each edge, float64 [e]. stage: of the actions, int32 [n]."""
        return np.array([self.of_edge.get(edge, self.any_edge_ns) for edge in _stages_of(stage, edges)], dtype=float)


def typical_times(
    action_orders: Sequence[ActionOrder], edges: Sequence[Edges], transfers: Sequence[Transfers]
) -> TypicalTimes:
    """Return typical times over all steps of a pipeline."""
    stages = max(int(p.stage.max()) for p in action_orders) + 1
    counts, sums = np.zeros((len(ACTION_KINDS), stages)), np.zeros((len(ACTION_KINDS), stages))
    seen: dict[tuple[int, int], list[Int64]] = {}
    for order, of_order, found in zip(action_orders, edges, transfers, strict=True):
        np.add.at(counts, (order.kind, order.stage), order.work_ns.shape[1])
        np.add.at(sums, (order.kind, order.stage), order.work_ns.sum(axis=1))
        for edge, took_ns, visible in zip(_stages_of(order.stage, of_order), found.took_ns, found.visible, strict=True):
            seen.setdefault(edge, []).append(took_ns[visible])
    known = {edge: np.concatenate(values) for edge, values in seen.items()}
    every = np.concatenate([np.empty(0), *known.values()])
    with np.errstate(invalid="ignore"):
        of_kind, of_stage = sums.sum(axis=1) / counts.sum(axis=1), sums / counts
    return TypicalTimes(
        of_kind=of_kind,
        of_stage=of_stage,
        beyond_chance=_beyond_chance(action_orders, of_stage),
        of_edge={edge: float(np.median(values)) for edge, values in known.items() if len(values)},
        any_edge_ns=float(np.median(every)) if len(every) else 0.0,
    )


def _beyond_chance(action_orders: Sequence[ActionOrder], of_stage: Float64) -> Float64:
    """Return the means by stage, float64 [kinds, stages], the same for stages that differ by chance only.

    By how much a stage's mean may be wrong is told by the means of its steps. of_stage: float64 [kinds, stages].
    """
    result = of_stage.copy()
    of_steps = np.concatenate([_means_of_steps(order, of_stage.shape) for order in action_orders], axis=2)
    steps = of_steps.shape[2]
    for kind, means in enumerate(of_stage):
        stages = np.flatnonzero(~np.isnan(means) & ~np.isnan(of_steps[kind]).any(axis=1))
        if steps < 2 or len(stages) < 2:
            continue
        error_ns = np.sqrt(of_steps[kind, stages].var(axis=1, ddof=1) / steps)
        error_ns = np.maximum(error_ns, np.median(error_ns))  # of few steps, some are alike by chance
        alike = stages[np.abs(means[stages] - np.median(means[stages])) < _STANDARD_ERRORS * error_ns]
        if len(alike):
            result[kind, alike] = means[alike].mean()
    return result


def _means_of_steps(order: ActionOrder, shape: tuple[int, ...]) -> Float64:
    """Return the mean of the actions of each kind and stage in each step, float64 [kinds, stages, k]; NaN for none."""
    counts, sums = np.zeros(shape), np.zeros((*shape, order.work_ns.shape[1]))
    np.add.at(counts, (order.kind, order.stage), 1)
    np.add.at(sums, (order.kind, order.stage), order.work_ns)
    with np.errstate(invalid="ignore"):
        result: Float64 = sums / counts[..., None]
    return result


def _stages_of(stage: Int32, edges: Edges) -> list[tuple[int, int]]:
    """Return the stages that each edge leads from and to."""
    return list(zip(stage[edges.producers].tolist(), stage[edges.consumers].tolist(), strict=True))
