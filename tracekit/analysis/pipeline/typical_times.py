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

# Chance lets the means of four stages vary by three times as much as expected in one of 20 runs (F distribution).
_BY_CHANCE = 3.0

__all__ = ["TypicalTimes", "typical_times"]


@dataclass(frozen=True, kw_only=True, eq=False)
class TypicalTimes:
    """Typical times of a pipeline's steps, in ns.

    Attributes:
        of_kind: float64 [kinds], mean of the actions; NaN without any.
        of_stage: float64 [kinds, stages], mean of the actions; NaN without any.
        beyond_chance: float64 [kinds], the share of the variance between stages that chance does not explain.
        of_edge: median transfer by sending and receiving stage.
        any_edge_ns: median over all transfers.
    """

    of_kind: Float64
    of_stage: Float64
    beyond_chance: Float64
    of_edge: dict[tuple[int, int], float]
    any_edge_ns: float

    def of_actions(self, kind: Int32, stage: Int32) -> Float64:
        """Return how long actions take by their stages, as far as these differ beyond chance, float64 [n]."""
        equal: Float64 = self.of_kind[kind]
        return equal + self.beyond_chance[kind] * (self.of_stage[kind, stage] - equal)

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
    """Return the share of the variance between stages that is no chance, float64 [kinds]; 1 where that is not known.

    By how much a stage's mean may be wrong is told by the means of its steps. of_stage: float64 [kinds, stages].
    """
    steps = sum(order.work_ns.shape[1] for order in action_orders)
    of_steps = np.full((*of_stage.shape, steps), np.nan)
    first = 0
    for order in action_orders:
        last = first + order.work_ns.shape[1]
        counts, sums = np.zeros(of_stage.shape), np.zeros((*of_stage.shape, last - first))
        np.add.at(counts, (order.kind, order.stage), 1)
        np.add.at(sums, (order.kind, order.stage), order.work_ns)
        with np.errstate(invalid="ignore"):
            of_steps[..., first:last] = sums / counts[..., None]
        first = last
    result = np.ones(len(of_stage))
    for kind, means in enumerate(of_stage):
        present = ~np.isnan(means)
        of_kind = of_steps[kind, present]
        if steps > 1 and present.sum() > 1 and not np.isnan(of_kind).any() and (variance := means[present].var(ddof=1)):
            chance = float((of_kind.var(axis=1, ddof=1) / steps).mean())
            result[kind] = max(1 - _BY_CHANCE * chance / float(variance), 0.0)
    return result


def _stages_of(stage: Int32, edges: Edges) -> list[tuple[int, int]]:
    """Return the stages that each edge leads from and to."""
    return list(zip(stage[edges.producers].tolist(), stage[edges.consumers].tolist(), strict=True))
