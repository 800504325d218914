"""Which stage of a pipeline takes longer than the others, and what else holds up steps: late hosts, data, slow edges.

All pipelines are looked at side by side. A stage is compared with those of other ranks, as a rank may have several. It
is uneven if its ranks compute so much more. If only one of its ranks does, the other ranks of the stage wait for that
one in collectives, and the rank is slow. If none does, their hosts are late.

A delay is by how much a step would be shorter without it, by a replay of the order that was run. Every action begins
when the one before it on its rank has ended and its input has arrived. What remains until it begins, and is not spent
on other work of the device, is the host's lateness. So is the time inside an action in which the device has nothing to
do, and the time until a rank sends what is computed or is ready to receive. Other ranks are late as well, if less: what
is usual with them is no delay. How long stages take is no delay either: a stage has no peers in its pipeline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tracekit.explain.pipeline.bubble_causes import MeasuredPipeline, PipelineReplay, longest_pipeline
from tracekit.explain.pipeline.steps import ActionOrder
from tracekit.explain.pipeline.transfers import Edges, Transfers
from tracekit.findings.thresholds import NOTABLE_SAVING
from tracekit.model.events import Float64, Int64
from tracekit.model.spans import ACTION_KINDS
from tracekit.stats.uncertainty import leave_one_out_medians, standard_error

_LEAST = 1.05  # times as long as the other stages
_CLEARLY = 1.15  # times as long; a stage that is less slow must cost something, and be slow in every action
_PERSISTENT = 0.75  # of the steps
_SIGNIFICANT = 4.0  # standard errors of the mean over steps
_COMPUTED = 0.5  # of what a stage takes longer; the rest may be gaps between kernels
_LEAST_DELAY = 0.005  # of the time from the first to the last action: less is not replayed


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
            for stage, rank_index in set(zip(order.stage.tolist(), order.rank.tolist(), strict=True)):
                ranks[stage].add(measured.ranks[rank_index])
    return ranks


@dataclass(frozen=True, kw_only=True)
class SlowStageLink:
    """Two ranks whose messages to each other take `slowdown` times as long as those of other ranks."""

    ranks: tuple[int, ...]
    slowdown: float


@dataclass(frozen=True, kw_only=True, eq=False)
class PipelineDelays:
    """The delays of one pipeline in k steps.

    Attributes:
        steps: numbers of the steps, int64 [k].
        host_ns: what the lateness of each rank's host adds to the step, int64 [ranks, k].
        data_ns: what the data loading of each rank adds to the step, int64 [ranks, k].
        links_ns: what each of the slow links adds to the step, int64 [links, k].
    """

    steps: Int64
    host_ns: Int64
    data_ns: Int64
    links_ns: Int64


def pipeline_delays(measured: MeasuredPipeline, links: Sequence[SlowStageLink]) -> PipelineDelays:
    """Return the delays of a pipeline. links: those whose messages take longer than others."""
    parts = [
        _delays_of_order(measured, order, edges, transfers, replay, links)
        for order, edges, transfers, replay in zip(
            measured.action_orders, measured.edges, measured.transfers, measured.replays, strict=True
        )
    ]
    steps = np.concatenate([part.steps for part in parts])
    order = np.argsort(steps, kind="stable")
    host_ns, data_ns, links_ns = (
        np.concatenate([getattr(part, name) for part in parts], axis=1)[:, order]
        for name in ("host_ns", "data_ns", "links_ns")
    )
    return PipelineDelays(steps=steps[order], host_ns=host_ns, data_ns=data_ns, links_ns=links_ns)


def _delays_of_order(
    measured: MeasuredPipeline,
    order: ActionOrder,
    edges: Edges,
    transfers: Transfers,
    replay: PipelineReplay,
    links: Sequence[SlowStageLink],
) -> PipelineDelays:
    late_ns = _late_actions_ns(order, edges, transfers)
    loading_ns = np.minimum(late_ns, order.data_ns)
    durations_ns, took_ns = _replayed_ns(order, edges, transfers)
    span_ns = replay(durations_ns, took_ns)[1]

    def saved_ns(less_ns: Float64 | Int64, less_transfer_ns: Float64 | Int64) -> Int64:
        """Return by how much the steps would be shorter, int64 [k], if actions, [n, k], and transfers, [e, k], took so
        much less.
        """
        if less_ns.sum() + less_transfer_ns.sum() < _LEAST_DELAY * span_ns.sum():
            return np.zeros(len(order.steps), dtype=np.int64)
        return np.rint(span_ns - replay(durations_ns - less_ns, took_ns - less_transfer_ns)[1]).astype(np.int64)

    of_actions_ns = _unusual_ns(order, late_ns - loading_ns, order.idle_ns)
    late_rank = np.where(
        transfers.late_sender, order.rank[edges.producers][:, None], order.rank[edges.consumers][:, None]
    )
    of_messages_ns = _unusual_of_messages_ns(late_rank, transfers.late_ns)
    host_ns, data_ns = [], []
    no_time, no_transfers = np.zeros_like(durations_ns), np.zeros_like(took_ns)
    for rank_index in range(len(measured.ranks)):
        here = (order.rank == rank_index)[:, None]
        host_ns.append(saved_ns(of_actions_ns * here, of_messages_ns * (late_rank == rank_index)))
        data_ns.append(saved_ns(loading_ns * here, no_transfers))
    beyond_ns = [_slow_part_ns(measured.ranks, order, edges, transfers, link) for link in links]
    links_ns = np.array([saved_ns(no_time, beyond) for beyond in beyond_ns], dtype=np.int64)
    return PipelineDelays(
        steps=order.steps,
        host_ns=np.stack(host_ns),
        data_ns=np.stack(data_ns),
        links_ns=links_ns.reshape(len(links), len(order.steps)),
    )


def replay_with_less(
    measured: MeasuredPipeline, less_ns: Sequence[tuple[Float64 | Int64, Float64 | Int64]]
) -> tuple[Float64, Float64]:
    """Return how long the steps of a pipeline take in the replay, and how much less with less work, float64 [k].

    less_ns: of each order, by how much its actions, [n, k], and its transfers, [e, k], would be shorter.
    """
    spans_ns, saved_ns = [], []
    for order, edges, transfers, replay, (less_work_ns, less_transfer_ns) in zip(
        measured.action_orders, measured.edges, measured.transfers, measured.replays, less_ns, strict=True
    ):
        durations_ns, took_ns = _replayed_ns(order, edges, transfers)
        span_ns = replay(durations_ns, took_ns)[1]
        spans_ns.append(span_ns)
        saved_ns.append(span_ns - replay(durations_ns - less_work_ns, np.maximum(took_ns - less_transfer_ns, 0))[1])
    return np.concatenate(spans_ns), np.concatenate(saved_ns)


def _replayed_ns(order: ActionOrder, edges: Edges, transfers: Transfers) -> tuple[Float64, Float64]:
    """Return how long each action takes, with the time until it begins, and each transfer, until both hosts have issued
    it and it has ended: float64 [n, k] and [e, k].
    """
    work_ns = order.work_ns + gaps_before_ns(order, edges, transfers)
    return work_ns.astype(np.float64), (transfers.took_ns + transfers.late_ns).astype(np.float64)


def _late_actions_ns(order: ActionOrder, edges: Edges, transfers: Transfers) -> Int64:
    """Return how long after it could have begun each action began, without other work of the device: int64 [n, k]."""
    return np.asarray(np.maximum(gaps_before_ns(order, edges, transfers) - order.other_ns, 0))


def gaps_before_ns(order: ActionOrder, edges: Edges, transfers: Transfers) -> Int64:
    """Return how long after the action before it, and after its input, each action began: int64 [n, k]."""
    before_ns = np.roll(order.end_ns, 1, axis=0)
    before_ns[order.first] = order.begin_ns[order.rank[order.first]]
    np.maximum.at(before_ns, edges.consumers, transfers.ended_ns)
    return np.asarray(np.maximum(order.start_ns - before_ns, 0))


def _unusual_ns(order: ActionOrder, late_ns: Int64, idle_ns: Int64) -> Float64:
    """Return by how much the lateness of each action exceeds what is usual on other ranks, float64 [n, k].

    What comes before a rank's first action of a step is not compared: only the first stage has to prepare a batch.
    """
    result = np.zeros(late_ns.shape)
    for values, compared in ((late_ns, ~order.first), (idle_ns, np.ones(len(order.rank), dtype=np.bool_))):
        for kind in np.unique(order.kind).tolist():
            rows = np.flatnonzero(compared & (order.kind == kind))
            usual_ns = _usual_elsewhere(order.rank[rows], values[rows])
            result[rows] += np.maximum(values[rows] - usual_ns[order.rank[rows]][:, None], 0)
    return result


def _unusual_of_messages_ns(rank: Int64, late_ns: Int64) -> Float64:
    """Return by how much the lateness of each transfer exceeds what is usual on other ranks, float64 [e, k].

    rank: int64 [e, k], whose host was late.
    """
    usual_ns = _usual_elsewhere(rank.ravel(), late_ns.ravel())
    return np.asarray(np.maximum(late_ns - usual_ns[rank], 0), dtype=np.float64)


def _usual_elsewhere(rank: Int64, values: Int64) -> Int64:
    """Return for each rank the median over the other ranks of their median value, int64 [ranks].

    values: int64 [m, k]. rank: int64 [m].
    """
    count = int(rank.max(initial=0)) + 1
    medians, known = np.zeros((1, count), dtype=np.int64), np.zeros((1, count), dtype=np.bool_)
    for rank_index in np.unique(rank).tolist():
        medians[0, rank_index], known[0, rank_index] = np.median(values[rank == rank_index]), True
    usual: Int64 = leave_one_out_medians(medians, known)[0]
    return usual


def _slow_part_ns(
    ranks: Sequence[int], order: ActionOrder, edges: Edges, transfers: Transfers, link: SlowStageLink
) -> Float64:
    """Return by how much transfers over a link exceed what is usual on others, float64 [e, k]."""
    ends = np.array(ranks)[np.stack((order.rank[edges.producers], order.rank[edges.consumers]))]
    over = np.isin(ends, link.ranks).all(axis=0) & (ends[0] != ends[1])
    if not over.any():
        return np.zeros(transfers.took_ns.shape)
    known = over[:, None] & transfers.visible
    took_ns = transfers.took_ns[known] if known.any() else transfers.took_ns[over]
    usual_ns = float(np.median(took_ns)) / link.slowdown
    return np.asarray(np.maximum(transfers.took_ns - usual_ns, 0) * over[:, None])
