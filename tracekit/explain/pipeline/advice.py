"""What would shorten a pipeline's step, and by how much: predicted by replays of other schedules.

A prediction is compared with the replay of the order that was run, with typical times (R2 of `bubble_causes`). The
typical time of an action is the mean of its stage and kind, that of a transfer the median between its stages. What even
stages would save is in `whatif`. These assumptions are made:

* Half a microbatch, and half a stage, take half the time. A transfer takes as long as before.
* What late peers and the host add grows with the number of actions. It counts as uncertain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tracekit.explain.pipeline.bubble_causes import (
    MeasuredPipeline,
    TypicalTimes,
    build_pipeline_replay,
    longest_pipeline,
)
from tracekit.explain.pipeline.schedules import ORDERED_SCHEDULES, Order, order_of_schedule, schedule_of_order
from tracekit.explain.pipeline.transfers import edges_between_ranks
from tracekit.explain.pipeline.uneven_stage import UnevenStage
from tracekit.findings.finding import Finding
from tracekit.findings.pipeline import pipeline_bubble, uneven_stage
from tracekit.findings.thresholds import BUBBLE_RATIO
from tracekit.model.events import ABSENT, Float64
from tracekit.model.spans import ACTION_KINDS
from tracekit.stats.uncertainty import is_worthwhile, standard_error

_BEYOND_IDEAL = 0.05  # of the pipeline's time: so much more than the ideal is worth a warning


@dataclass(frozen=True, kw_only=True)
class PipelineChange:
    """A change of the pipeline.

    Attributes:
        what: the change in words.
        saves_ns_per_step: by how much it would shorten the mean step.
        error_ns: the uncertainty of that.
        share: the saving as a share of the time from the first to the last action.
    """

    what: str
    saves_ns_per_step: int
    error_ns: int
    share: float


def _most_common_order(measured: MeasuredPipeline) -> list[Order]:
    """Return the order of each rank that was run in most steps."""
    order = max(measured.action_orders, key=lambda p: len(p.steps))
    return [
        [
            (ACTION_KINDS[order.kind[i]], int(order.stage[i]), int(order.microbatch[i]))
            for i in np.flatnonzero(order.rank == rank_index).tolist()
        ]
        for rank_index in range(len(measured.ranks))
    ]


def find_pipeline_changes(
    pipelines: Sequence[MeasuredPipeline], virtual_stages: int, microbatches: int
) -> tuple[PipelineChange, ...]:
    """Return the changes that surely save something, and at least 2 % of the step, the largest saving first.

    They are tried on the pipeline whose steps are the longest, because the others wait for it.
    """
    if not pipelines:
        return ()
    measured = longest_pipeline(pipelines)
    orders = _most_common_order(measured)
    ranks, typical = len(orders), measured.typical
    spans_ns = np.concatenate([order.span_ns for order in measured.action_orders])
    measured_ns = float(spans_ns.mean())
    posted_late = _receives_are_posted_late(measured)

    def stage_ns(kind: int, stage: int) -> float:
        return float(typical.of_stage[kind, stage])

    base_ns = _span_ns(orders, stage_ns, typical, posted_late)
    beyond_ns = measured_ns - base_ns
    spread_ns = standard_error(spans_ns)
    changes: list[PipelineChange] = []

    def consider(what: str, changed: Sequence[Order] | None, duration_ns: Callable[[int, int], float]) -> None:
        if changed is None:
            return
        saves_ns = base_ns - _span_ns(changed, duration_ns, typical, posted_late)
        more_ns = beyond_ns * (len(changed[0]) / len(orders[0]) - 1)  # late peers and the host, of more actions
        error_ns = float(np.sqrt((saves_ns * beyond_ns / measured_ns) ** 2 + more_ns**2 + spread_ns**2))
        saves_ns -= max(more_ns, 0.0)
        if is_worthwhile(saves_ns, error_ns, measured_ns):
            share = saves_ns / measured_ns
            changes.append(
                PipelineChange(what=what, saves_ns_per_step=round(saves_ns), error_ns=round(error_ns), share=share)
            )

    trains = any(kind == "B" for kind, _, _ in orders[0])
    schedule = schedule_of_order(orders) if trains else "unknown"
    if schedule in ORDERED_SCHEDULES:
        consider(
            f"{2 * microbatches} microbatches of half the size",
            order_of_schedule(schedule, ranks, virtual_stages, 2 * microbatches),
            lambda kind, stage: stage_ns(kind, stage) / 2,
        )
    if schedule in {"gpipe", "1f1b"}:
        consider(
            "the interleaved schedule with each stage cut in two",
            order_of_schedule("interleaved1f1b", ranks, 2, microbatches),
            lambda kind, stage: stage_ns(kind, stage % ranks) / 2,
        )
    return tuple(sorted(changes, key=lambda change: -change.saves_ns_per_step))


def pipeline_findings(
    bubble_ratio: float | None,
    ideal_ratio: float | None,
    causes_ns: dict[str, int] | None,
    uneven: UnevenStage | None,
    changes: Sequence[PipelineChange],
) -> tuple[Finding, ...]:
    """Return findings on the bubbles, with their causes and the best remedy, and on an uneven stage."""
    findings = []
    if uneven is not None:
        findings.append(
            uneven_stage(
                rank=uneven.ranks[0] if len(uneven.ranks) == 1 else None,
                ranks=uneven.ranks,
                cause="imbalance",
                evidence={
                    "stage": uneven.stage,
                    "factor": uneven.factor,
                    "work_ns": uneven.work_ns,
                    "others_ns": uneven.others_ns,
                    "fastest": uneven.fastest,
                },
                remedy="stages",
            )
        )
    if bubble_ratio is not None and causes_ns is not None:
        beyond = bubble_ratio - (ideal_ratio or 0.0)
        findings.append(
            pipeline_bubble(
                severity="warning" if changes or beyond >= _BEYOND_IDEAL else "info",
                saving_ns=changes[0].saves_ns_per_step if changes else None,
                saving_error_ns=changes[0].error_ns if changes else None,
                cause="bubble",
                evidence={
                    "bubble_ratio": bubble_ratio,
                    "named_ratio": 0.0,
                    "ideal_bubble_ratio": ideal_ratio,
                    **causes_ns,
                    "schedule": changes[0].what if changes else None,
                },
                conditions=[BUBBLE_RATIO.reached_by(bubble_ratio)],
            )
        )
    return tuple(findings)


def _receives_are_posted_late(measured: MeasuredPipeline) -> bool:
    """Return whether most receives are posted right before the action that needs them, which hides no transfer."""
    posted_late = np.concatenate(
        [sent.posted_after == edges.previous for sent, edges in zip(measured.transfers, measured.edges, strict=True)]
    )
    return bool(len(posted_late)) and bool(posted_late.mean() > 0.5)


def _span_ns(
    orders: Sequence[Order], duration_ns: Callable[[int, int], float], typical: TypicalTimes, posted_late: bool
) -> float:
    """Return how long a step takes in which the ranks run these orders.

    duration_ns: of a kind and a stage. posted_late: whether receives are posted right before the action in need.
    """
    rank = np.repeat(np.arange(len(orders)), [len(order) for order in orders])
    rows = [(ACTION_KINDS.index(kind), stage, number) for order in orders for kind, stage, number in order]
    kind, stage, microbatch = np.array(rows, dtype=np.int32).T
    edges = edges_between_ranks(rank, kind, stage, microbatch)
    posted_after = edges.previous if posted_late else np.full(len(edges), ABSENT, dtype=np.int64)
    work_ns = np.array([duration_ns(*pair) for pair in zip(kind.tolist(), stage.tolist(), strict=True)])
    transfer_ns: Float64 = typical.of_edges(stage, edges)
    return float(build_pipeline_replay(rank, edges, posted_after)(work_ns[:, None], transfer_ns[:, None])[1][0])
