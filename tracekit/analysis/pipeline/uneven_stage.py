"""Which stage of a pipeline takes longer than the others, in all pipelines side by side.

A stage is compared with those of other ranks, as a rank may have several. It is uneven if its ranks compute so much
more. If only one of its ranks does, the other ranks of the stage wait for that one in collectives, and the rank is
slow. If none does, their hosts are late (`delays`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tracekit.analysis.pipeline.bubble_causes import MeasuredPipeline, longest_pipeline
from tracekit.analysis.pipeline.delays import replay_with_less
from tracekit.analysis.stats.uncertainty import NOTABLE_SAVING, standard_error
from tracekit.model.events import Float64
from tracekit.model.spans import ACTION_KINDS

_LEAST = 1.05  # times as long as the other stages
_CLEARLY = 1.15  # times as long; a stage that is less slow must cost something, and be slow in every action
_PERSISTENT = 0.75  # of the steps
_SIGNIFICANT = 4.0  # standard errors of the mean over steps
_COMPUTED = 0.5  # of what a stage takes longer; the rest may be gaps between kernels

__all__ = ["UnevenStage", "find_uneven_stage"]


@dataclass(frozen=True, kw_only=True)
class UnevenStage:
    """A stage that takes longer than the others.

    Attributes:
        stage: the stage.
        ranks: its ranks.
        factor: how many times as long as the median of the other ranks' stages it takes for a microbatch.
        work_ns: how long it takes for a microbatch.
        others_ns: the median of the other ranks' stages.
        fastest: the stage of the other ranks that takes the least.
        saves_ns_per_step: by how much the mean step would be shorter if its ranks took as long as the others.
        error_ns: the uncertainty of that.
        share: the saving as a share of the time from the first to the last action.
    """

    stage: int
    ranks: tuple[int, ...]
    factor: float
    work_ns: int
    others_ns: int
    fastest: int
    saves_ns_per_step: int
    error_ns: int
    share: float


def find_uneven_stage(pipelines: Sequence[MeasuredPipeline], compute_ns: Mapping[int, float]) -> UnevenStage | None:
    """Return the slowest stage if it is slower than those of other ranks in most steps, and all its ranks compute more.

    compute_ns: how long each rank computes a step; 0 where that is not known.
    """
    by_step_ns, microbatches = _work_of_stages(pipelines)
    ranks = _ranks_of_stages(pipelines, len(by_step_ns))
    mean_ns = by_step_ns.mean(axis=1)
    slowest = int(mean_ns.argmax())
    others = [stage for stage, of_stage in enumerate(ranks) if not of_stage & ranks[slowest]]
    if not others:
        return None
    others_ns = float(np.median(mean_ns[others]))
    beyond_ns = by_step_ns[slowest] - np.median(by_step_ns[others], axis=0)
    persistent = (by_step_ns[slowest] > by_step_ns[others].max(axis=0)).mean() >= _PERSISTENT
    if not others_ns or not persistent or mean_ns[slowest] < _LEAST * others_ns:
        return None
    if beyond_ns.mean() < _SIGNIFICANT * standard_error(beyond_ns):
        return None
    siblings = [stage for stage, of_stage in enumerate(ranks) if of_stage & ranks[slowest]]
    longer_ns = float((mean_ns[siblings] - others_ns).sum()) * microbatches
    peers = {rank for stage in others for rank in ranks[stage]}
    usual_ns = float(np.median([compute_ns[rank] for rank in peers]))
    more_ns = min(compute_ns[rank] for rank in ranks[slowest]) - usual_ns
    if usual_ns and more_ns < _COMPUTED * longer_ns:
        return None
    spans_ns, saved_ns = _saved_at_the_pace_of_others(pipelines, siblings, others)
    share = float(saved_ns.sum() / spans_ns.sum())
    fastest_ns = _fastest_of_stages(pipelines, len(by_step_ns))
    always = fastest_ns[slowest] >= _LEAST * np.median(fastest_ns[others])
    if mean_ns[slowest] < _CLEARLY * others_ns and (share < NOTABLE_SAVING or not always):
        return None
    return UnevenStage(
        stage=slowest,
        ranks=tuple(sorted(ranks[slowest])),
        factor=float(mean_ns[slowest] / others_ns),
        work_ns=round(float(mean_ns[slowest])),
        others_ns=round(others_ns),
        fastest=min(others, key=lambda stage: float(mean_ns[stage])),
        saves_ns_per_step=round(float(saved_ns.mean())),
        error_ns=round(standard_error(saved_ns)),
        share=share,
    )


def _saved_at_the_pace_of_others(
    pipelines: Sequence[MeasuredPipeline], slow: Sequence[int], others: Sequence[int]
) -> tuple[Float64, Float64]:
    """Return how long each step of the pipeline with the longest steps takes, and how much less it would take if `slow`
    stages took as long as the median of the `others`: float64 [k] each, by a replay of what was measured.
    """
    measured = longest_pipeline(pipelines)
    typical_ns = measured.typical.of_stage
    usual_ns = np.median(typical_ns[:, others], axis=1)
    kinds, stages = typical_ns.shape
    factors = np.ones((kinds, stages + 1))  # the last column is for actions without a stage, -1
    for stage in slow:
        np.divide(usual_ns, typical_ns[:, stage], out=factors[:, stage], where=typical_ns[:, stage] > usual_ns)
    less_ns = [
        (order.work_ns * (1 - factors[order.kind, order.stage])[:, None], 0 * transfers.took_ns)
        for order, transfers in zip(measured.action_orders, measured.transfers, strict=True)
    ]
    return replay_with_less(measured, less_ns)


def _work_of_stages(pipelines: Sequence[MeasuredPipeline]) -> tuple[Float64, float]:
    """Return how long each stage works for a microbatch, float64 [stages, k] over all steps of all pipelines; and how
    many microbatches a step has.
    """
    orders = [order for measured in pipelines for order in measured.action_orders]
    stages = max(int(order.stage.max()) for order in orders) + 1
    parts, microbatches = [], 1.0
    for order in orders:
        work_ns, forwards = np.zeros((stages, len(order.steps))), np.zeros(stages)
        np.add.at(work_ns, order.stage, order.work_ns)
        np.add.at(forwards, order.stage, order.kind == ACTION_KINDS.index("F"))
        microbatches = max(microbatches, float(forwards.max()))
        parts.append(work_ns / np.maximum(forwards, 1)[:, None])
    return np.concatenate(parts, axis=1), microbatches


def _fastest_of_stages(pipelines: Sequence[MeasuredPipeline], stages: int) -> Float64:
    """Return how long each stage takes for a microbatch if each kind of action takes as long as its fastest did.

    float64 [stages]. More layers show in every action; a busy machine slows some.
    """
    result = np.full((len(ACTION_KINDS), stages), np.inf)
    for measured in pipelines:
        for order in measured.action_orders:
            np.minimum.at(result, (order.kind, order.stage), order.work_ns.min(axis=1))
    fastest_ns: Float64 = np.where(np.isinf(result), 0.0, result).sum(axis=0)
    return fastest_ns


def _ranks_of_stages(pipelines: Sequence[MeasuredPipeline], stages: int) -> list[set[int]]:
    ranks: list[set[int]] = [set() for _ in range(stages)]
    for measured in pipelines:
        for order in measured.action_orders:
            for stage, place in set(zip(order.stage.tolist(), order.rank.tolist(), strict=True)):
                ranks[stage].add(measured.ranks[place])
    return ranks
