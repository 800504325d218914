"""Why a pipeline's ranks are idle: replays of their actions, each with one more of the measured times.

The idle time that a replay adds to the one before it has this cause (docs/definitions.md, "Pipeline"):

    R0  Every action takes the mean of its kind, and transfers take no time. The idle time before a rank's first
        backward is warm-up, the rest drain. Together they are what the schedule costs.
    R1  Every action takes the mean of its stage and kind: imbalance. Stages that differ by chance only have one mean.
    R2  Every transfer takes the median between its stages: transfer.
    R3  Every action and every transfer takes its measured time: late peers.
        What is left of the measured idle time is other, such as the host between actions, or waiting for a send.

An action waits for the one before it on its rank, and for the transfer of what it needs (`transfers`). How long a
transfer took is known if the receiving rank waited all that time. Otherwise the transfer is hidden. It then takes the
median between its stages, but no longer than what is known of it.

Means of equal stages differ by chance, too. How much they do is told by the means of single steps.

The same replays tell the causes of the idle time before each action of a step apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tracekit.explain.pipeline.steps import ActionOrder, PipelineSteps
from tracekit.explain.pipeline.transfers import (
    Edges,
    MessageExchange,
    Transfers,
    edges_between_ranks,
    measure_transfers,
)
from tracekit.model.events import ABSENT, Bool, Float64, Int32, Int64
from tracekit.model.spans import ACTION_KINDS
from tracekit.replay.replay import CyclicGraphError, DependencyGraph, build_graph

CAUSES = ("warmup", "drain", "imbalance", "transfer", "late_peer", "other")
_FORWARD = (ACTION_KINDS.index("F"),)
_BACKWARD = tuple(ACTION_KINDS.index(kind) for kind in ("B", "I"))

_SLOWER = 1.05  # times as long as in the quickest replica
_STANDARD_ERRORS = 4  # of a mean: a stage that differs from the median one by less is like it


@dataclass(frozen=True, kw_only=True, eq=False)
class PipelineReplay:
    """n actions, and e transfers between them, ready to be replayed.

    Attributes:
        rank: int64 [n], the rank of each action.
        graph: the dependencies of the actions, then the transfers.
    """

    rank: Int64
    graph: DependencyGraph

    def __call__(self, work_ns: Float64, transfer_ns: Float64) -> tuple[Float64, Float64]:
        """Return when the actions begin, float64 [n, k], and the time from the first to the last action, float64 [k].

        work_ns: how long the actions take, float64 [n, k]. transfer_ns: float64 [e, k].
        """
        timeline = self.graph.replay(np.concatenate((work_ns, transfer_ns)))
        return timeline.start[: len(self.rank)], timeline.end[: len(self.rank)].max(axis=0)

    def by_rank(self, values: Float64) -> Float64:
        """Return sums by rank, float64 [ranks, k] of float64 [n, k]."""
        result = np.zeros((int(self.rank.max()) + 1, values.shape[1]))
        np.add.at(result, self.rank, values)
        return result


@dataclass(frozen=True, kw_only=True, eq=False)
class MeasuredPipeline:
    """One pipeline as its steps show it.

    Attributes:
        ranks: its ranks, by their first stage.
        action_orders: the orders that the ranks ran.
        edges: of each order which action waits for one of another rank.
        transfers: of each order the transfers of its edges.
        replays: of each order its replay.
        typical: typical times over all orders.
    """

    ranks: tuple[int, ...]
    action_orders: tuple[ActionOrder, ...]
    edges: tuple[Edges, ...]
    transfers: tuple[Transfers, ...]
    replays: tuple[PipelineReplay, ...]
    typical: TypicalTimes


def longest_pipeline(pipelines: Sequence[MeasuredPipeline]) -> MeasuredPipeline:
    """Return the pipeline with the longest steps, for which the others wait."""
    return max(pipelines, key=lambda p: max(float(order.span_ns.mean()) for order in p.action_orders))


@dataclass(frozen=True, kw_only=True, eq=False)
class BubbleCauses:
    """The bubbles of a pipeline by cause.

    Attributes:
        idle_ns: int64 [ranks, causes], over all steps; each row sums to the rank's bubbles.
        ideal_ratio: the share of R0's time in which ranks are idle.
        replay_error: by how much R3 takes longer than what was measured, as a share.
    """

    idle_ns: Int64
    ideal_ratio: float
    replay_error: float


def build_pipeline_replay(rank: Int64, edges: Edges, posted_after: Int64, joint: Int64 | None = None) -> PipelineReplay:
    """Return the replay of actions in the order of each rank.

    rank: int64 [n], ascending. posted_after: int64 [e], the action after which the receive of each edge is posted, or
    -1. joint: int64 [2, d], transfers and actions that wait for them, too.

    Raises CyclicGraphError when actions wait for each other.
    """
    shared, waiting = np.empty((2, 0), dtype=np.int64) if joint is None else joint
    count = len(rank)
    follows = np.flatnonzero(rank[1:] == rank[:-1])
    transfer = count + np.arange(len(edges))
    posted = posted_after != ABSENT
    graph = build_graph(
        count + len(edges),
        np.concatenate((follows, edges.producers, posted_after[posted], transfer, count + shared)),
        np.concatenate((follows + 1, transfer, transfer[posted], edges.consumers, waiting)),
        np.full(count + len(edges), -1, dtype=np.int64),
    )
    return PipelineReplay(rank=rank, graph=graph)


def measure_pipeline(
    steps: PipelineSteps, exchanges: Mapping[tuple[int, int], MessageExchange]
) -> MeasuredPipeline | None:
    """Return the transfers and replays of a pipeline. exchanges: from `message_exchanges`.

    None where ranks or their actions are missing, in all steps or in some, or actions would wait for each other.
    """
    if not steps.action_orders or not all(_is_whole(order, len(steps.ranks)) for order in steps.action_orders):
        return None
    edges = [edges_between_ranks(p.rank, p.kind, p.stage, p.microbatch) for p in steps.action_orders]
    transfers = [
        measure_transfers(exchanges, steps.ranks, order, of_order)
        for order, of_order in zip(steps.action_orders, edges, strict=True)
    ]
    try:
        replays = [
            build_pipeline_replay(order.rank, of_order, sent.posted_after, sent.joint)
            for order, of_order, sent in zip(steps.action_orders, edges, transfers, strict=True)
        ]
    except CyclicGraphError:
        return None
    return MeasuredPipeline(
        ranks=steps.ranks,
        action_orders=steps.action_orders,
        edges=tuple(edges),
        transfers=tuple(transfers),
        replays=tuple(replays),
        typical=typical_times(steps.action_orders, edges, transfers),
    )


def as_quickest_replica(pipelines: Sequence[MeasuredPipeline | None]) -> list[MeasuredPipeline | None]:
    """Return the pipelines; a stage that is quicker in another replica does not take longer by its layers.

    Then it has the mean of the quickest replica in R1, and its rank is a late peer.
    """
    known = [measured.typical.beyond_chance for measured in pipelines if measured is not None]
    if len(known) < 2 or len({means.shape for means in known}) > 1:
        return list(pipelines)
    quickest_ns = np.fmin.reduce(known)
    result: list[MeasuredPipeline | None] = []
    for measured in pipelines:
        if measured is not None:
            own_ns = measured.typical.beyond_chance
            common_ns = np.where(own_ns > _SLOWER * quickest_ns, quickest_ns, own_ns)
            measured = replace(measured, typical=replace(measured.typical, beyond_chance=common_ns))
        result.append(measured)
    return result


def _is_whole(order: ActionOrder, ranks: int) -> bool:
    """Return whether all ranks take part, and the actions go through all stages. Backwards may begin behind some."""
    stages = 1 + int(order.stage.max())
    forwards, backwards = (
        np.bincount(order.stage[np.isin(order.kind, kinds) & (order.stage >= 0)], minlength=stages)
        for kinds in (_FORWARD, _BACKWARD)
    )
    backwards = backwards[int(np.argmax(backwards > 0)) :]  # stages whose parameters do not learn have none
    return len(np.unique(order.rank)) == ranks and np.ptp(forwards) == 0 and np.ptp(backwards) == 0


def _replayed_times(
    typical: TypicalTimes, order: ActionOrder, edges: Edges, transfers: Transfers
) -> tuple[tuple[Float64, Float64], ...]:
    """Return for R0 to R3 how long the actions and the transfers take, float64 [n, k] and [e, k]."""
    shape = order.work_ns.shape
    equal: Float64 = np.broadcast_to(typical.of_kind[order.kind][:, None], shape)
    by_stage: Float64 = np.broadcast_to(typical.beyond_chance[order.kind, order.stage][:, None], shape)
    typical_ns: Float64 = np.broadcast_to(typical.of_edges(order.stage, edges)[:, None], transfers.took_ns.shape)
    took_ns = np.where(transfers.visible, transfers.took_ns, np.minimum(transfers.took_ns, typical_ns))
    no_time = np.zeros_like(took_ns)
    return (
        (equal, no_time),
        (by_stage, no_time),
        (by_stage, typical_ns),
        (order.work_ns.astype(np.float64), took_ns),
    )


def attribute_bubbles(
    measured: MeasuredPipeline, bubble_ns: Sequence[int], twice_ns: Sequence[int] | None = None
) -> BubbleCauses:
    """Return the causes of the bubbles. bubble_ns: of each of the pipeline's ranks, over all steps.

    twice_ns: by how much longer than that the bubbles of single steps are, whose spans overlap. Before its first action
    and behind its last one a rank runs another step then.
    """
    idle_ns = np.zeros((5, len(measured.ranks)))  # the warm-up of R0, and all of R0 to R3
    equal_ns = measured_ns = replayed_ns = 0.0
    for order, edges, transfers, replay in zip(
        measured.action_orders, measured.edges, measured.transfers, measured.replays, strict=True
    ):
        span_ns = np.zeros(order.work_ns.shape[1])
        for number, (work_ns, transfer_ns) in enumerate(_replayed_times(measured.typical, order, edges, transfers)):
            start_ns, span_ns = replay(work_ns, transfer_ns)
            idle_ns[number + 1] += (span_ns - replay.by_rank(work_ns)).sum(axis=1)
            if number == 0:
                idle_ns[0] += _warmup_ns(order, work_ns, start_ns)
                equal_ns += float(span_ns.sum())
        measured_ns += float(order.span_ns.sum())
        replayed_ns += float(span_ns.sum())  # of R3
    filled_ns = np.minimum(np.zeros(len(measured.ranks)) if twice_ns is None else twice_ns, idle_ns[1])
    idle_ns[0] *= 1 - np.divide(filled_ns, idle_ns[1], out=np.zeros_like(filled_ns), where=idle_ns[1] > 0)
    idle_ns[1:] -= filled_ns
    total_ns = equal_ns * len(measured.ranks) - filled_ns.sum()
    reached_ns = np.concatenate((np.rint(idle_ns).astype(np.int64), np.array([bubble_ns], dtype=np.int64)))
    return BubbleCauses(
        idle_ns=np.diff(reached_ns, axis=0, prepend=0).T,
        ideal_ratio=float(idle_ns[1].sum()) / total_ns if total_ns else 0.0,
        replay_error=replayed_ns / measured_ns - 1 if measured_ns else 0.0,
    )


def _is_before_backward(order: ActionOrder) -> Bool:
    """Return which idle times are warm-up, bool [n]: those before actions up to the rank's first backward.

    Of a rank without a backward, only the one before its first action is.
    """
    result = np.zeros(len(order.rank), dtype=bool)
    for rank in range(int(order.rank.max()) + 1):
        actions = np.flatnonzero(order.rank == rank)
        backward = np.flatnonzero(np.isin(order.kind[actions], _BACKWARD))
        result[actions[: int(backward[0]) + 1 if len(backward) else 1]] = True
    return result


def _warmup_ns(order: ActionOrder, work_ns: Float64, start_ns: Float64) -> Float64:
    """Return how long each rank is idle before its first backward, or without one before its first action."""
    before = _is_before_backward(order)
    result = np.zeros(int(order.rank.max()) + 1)
    for rank in range(len(result)):
        actions = np.flatnonzero((order.rank == rank) & before)
        result[rank] = float((start_ns[actions[-1]] - work_ns[actions[:-1]].sum(axis=0)).sum())
    return result


@dataclass(frozen=True, kw_only=True)
class StepBubble:
    """An interval of a step in which a rank has no action.

    Attributes:
        rank: the global rank.
        start_ns: on the run's clock.
        end_ns: on the run's clock.
        cause: one of `CAUSES`, that which adds most to it.
    """

    rank: int
    start_ns: int
    end_ns: int
    cause: str


def step_bubbles(measured: MeasuredPipeline, step: int) -> list[StepBubble]:
    """Return the bubbles of a step by rank and time; empty where the pipeline has no such step."""
    for order, edges, transfers, replay in zip(
        measured.action_orders, measured.edges, measured.transfers, measured.replays, strict=True
    ):
        if step in order.steps:
            number = int(np.flatnonzero(order.steps == step)[0])
            times = _replayed_times(measured.typical, order, edges, transfers)
            return _bubbles(measured.ranks, order, number, _idle_by_cause(order, number, times, replay))
    return []


def _idle_by_cause(
    order: ActionOrder, number: int, times: tuple[tuple[Float64, Float64], ...], replay: PipelineReplay
) -> Float64:
    """Return the idle time before each action, and last after all of each rank, float64 [n + ranks, causes]."""
    before_backward = np.concatenate((_is_before_backward(order), np.zeros(int(order.rank.max()) + 1, dtype=bool)))
    idle_ns = []
    for work_ns, transfer_ns in times:
        start_ns, _ = replay(work_ns[:, number : number + 1], transfer_ns[:, number : number + 1])
        end_ns = start_ns[:, 0] + work_ns[:, number]
        idle_ns.append(_idle_around(order, start_ns[:, 0], end_ns, float(end_ns.max())))
    begin_ns = order.start_ns[:, number].min()
    end_ns = (order.end_ns[:, number] - begin_ns).astype(np.float64)
    measured_ns = _idle_around(order, end_ns - order.work_ns[:, number], end_ns, float(end_ns.max()))
    warmup_ns = np.where(before_backward, idle_ns[0], 0.0)
    return np.diff(np.stack((warmup_ns, *idle_ns, measured_ns)), axis=0, prepend=0).T


def _idle_around(order: ActionOrder, start_ns: Float64, end_ns: Float64, last_ns: float) -> Float64:
    """Return the time to each action from the one before it on its rank, then from each rank's last to `last_ns`."""
    previous_ns = np.where(order.first, 0.0, np.roll(end_ns, 1))
    return np.concatenate((start_ns - previous_ns, last_ns - end_ns[_last_actions(order)]))


def _last_actions(order: ActionOrder) -> Int64:
    return np.flatnonzero(np.append(order.first[1:], True))


def _bubbles(ranks: tuple[int, ...], order: ActionOrder, number: int, idle_ns: Float64) -> list[StepBubble]:
    start_ns, end_ns = order.end_ns[:, number] - order.work_ns[:, number], order.end_ns[:, number]
    begin_ns, last = order.start_ns[:, number].min(), _last_actions(order)
    from_ns = np.concatenate((np.where(order.first, begin_ns, np.roll(end_ns, 1)), end_ns[last]))
    to_ns = np.concatenate((start_ns, np.full(len(last), end_ns.max())))
    rank_index = np.concatenate((order.rank, order.rank[last]))
    causes = idle_ns.argmax(axis=1)
    return [
        StepBubble(
            rank=ranks[rank_index[at]], start_ns=int(from_ns[at]), end_ns=int(to_ns[at]), cause=CAUSES[causes[at]]
        )
        for at in np.lexsort((from_ns, rank_index)).tolist()
        if to_ns[at] > from_ns[at]
    ]


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
