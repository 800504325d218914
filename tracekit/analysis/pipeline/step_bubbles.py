"""The bubbles of one step of a pipeline, each with the cause that most of it has.

Replays tell the causes of a rank's idle time apart (`bubble_causes`). The same replays tell those of the idle time
before each of its actions, which sum to them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracekit.analysis.pipeline.bubble_causes import (
    CAUSES,
    MeasuredPipeline,
    PipelineReplay,
    is_before_backward,
    replayed_times,
)
from tracekit.analysis.pipeline.steps import ActionOrder
from tracekit.model.events import Float64, Int64

__all__ = ["StepBubble", "step_bubbles"]


@dataclass(frozen=True, kw_only=True)
class StepBubble:
    """A stretch of a step in which a rank has no action.

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
            times = replayed_times(measured.typical, order, edges, transfers)
            return _bubbles(measured.ranks, order, number, _idle_by_cause(order, number, times, replay))
    return []


def _idle_by_cause(
    order: ActionOrder, number: int, times: tuple[tuple[Float64, Float64], ...], replay: PipelineReplay
) -> Float64:
    """Return the idle time before each action, and last after all of each rank, float64 [n + ranks, causes]."""
    before_backward = np.concatenate((is_before_backward(order), np.zeros(int(order.rank.max()) + 1, dtype=bool)))
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
    place = np.concatenate((order.rank, order.rank[last]))
    causes = idle_ns.argmax(axis=1)
    return [
        StepBubble(rank=ranks[place[at]], start_ns=int(from_ns[at]), end_ns=int(to_ns[at]), cause=CAUSES[causes[at]])
        for at in np.lexsort((from_ns, place)).tolist()
        if to_ns[at] > from_ns[at]
    ]
