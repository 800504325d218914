"""What holds up the steps of a pipeline besides its stages' work: hosts that are late, data loading, and slow edges.

A delay is by how much a step would be shorter without it, by a replay of the order that was run. Every action begins
when the one before it on its rank has ended and its input has arrived. What remains until it begins, and is not spent
on other work of the device, is the host's lateness. So is the time inside an action in which the device has nothing to
do, and the time until a rank sends what is computed or is ready to receive. Other ranks are late as well, if less: what
is usual with them is no delay.

How long stages take is no delay here: a stage has no peers in its pipeline. `uneven_stage` compares stages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracekit.analysis.pipeline.bubble_causes import MeasuredPipeline, PipelineReplay
from tracekit.analysis.pipeline.steps import ActionOrder
from tracekit.analysis.pipeline.transfers import Edges, Transfers
from tracekit.analysis.stats.leave_one_out import leave_one_out_medians
from tracekit.model.events import Float64, Int64

_LEAST = 0.005  # of the time from the first to the last action: less is not replayed

__all__ = ["PipelineDelays", "SlowLink", "gaps_before_ns", "pipeline_delays", "replay_with_less"]


@dataclass(frozen=True, kw_only=True)
class SlowLink:
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


def pipeline_delays(measured: MeasuredPipeline, links: Sequence[SlowLink]) -> PipelineDelays:
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
    links: Sequence[SlowLink],
) -> PipelineDelays:
    late_ns = _late_actions_ns(order, edges, transfers)
    loading_ns = np.minimum(late_ns, order.data_ns)
    durations_ns, took_ns = _replayed_ns(order, edges, transfers)
    span_ns = replay(durations_ns, took_ns)[1]

    def saved_ns(less_ns: Float64 | Int64, less_transfer_ns: Float64 | Int64) -> Int64:
        """Return by how much the steps would be shorter, int64 [k], if actions, [n, k], and transfers, [e, k], took so
        much less.
        """
        if less_ns.sum() + less_transfer_ns.sum() < _LEAST * span_ns.sum():
            return np.zeros(len(order.steps), dtype=np.int64)
        return np.rint(span_ns - replay(durations_ns - less_ns, took_ns - less_transfer_ns)[1]).astype(np.int64)

    of_actions_ns = _unusual_ns(order, late_ns - loading_ns, order.idle_ns)
    late_rank = np.where(
        transfers.late_sender, order.rank[edges.producers][:, None], order.rank[edges.consumers][:, None]
    )
    of_messages_ns = _unusual_of_messages_ns(late_rank, transfers.late_ns)
    host_ns, data_ns = [], []
    no_time, no_transfers = np.zeros_like(durations_ns), np.zeros_like(took_ns)
    for place in range(len(measured.ranks)):
        here = (order.rank == place)[:, None]
        host_ns.append(saved_ns(of_actions_ns * here, of_messages_ns * (late_rank == place)))
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
    for place in np.unique(rank).tolist():
        medians[0, place], known[0, place] = np.median(values[rank == place]), True
    usual: Int64 = leave_one_out_medians(medians, known)[0]
    return usual


def _slow_part_ns(
    ranks: Sequence[int], order: ActionOrder, edges: Edges, transfers: Transfers, link: SlowLink
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
