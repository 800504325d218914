"""How long each stage of a pipeline takes for a microbatch, how long its ranks are idle, and why.

The span of a step is the time from the first to the last action over the ranks of one pipeline, on the run's clock. The
bubble of a rank is the span less the time that its actions cover. Waiting for a receive inside an action is bubble too
(docs/definitions.md, "Pipeline"). Where the spans of steps overlap, as those of forwards alone may, a rank's own steps
take their place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np

from tracekit.explain.pipeline import tables
from tracekit.explain.pipeline.advice import PipelineChange, find_pipeline_changes, pipeline_findings
from tracekit.explain.pipeline.bubble_causes import (
    CAUSES,
    BubbleCauses,
    MeasuredPipeline,
    as_quickest_replica,
    attribute_bubbles,
    measure_pipeline,
)
from tracekit.explain.pipeline.steps import PipelineSteps, pipeline_steps
from tracekit.explain.pipeline.tables import ACTIONS, Actions
from tracekit.explain.pipeline.transfers import message_exchanges
from tracekit.explain.pipeline.uneven_stage import UnevenStage, find_uneven_stage
from tracekit.explain.section import Unavailable
from tracekit.findings.finding import Finding
from tracekit.model.intervals import Intervals
from tracekit.model.metadata import PipelineLayout
from tracekit.model.run import Run
from tracekit.model.spans import ACTION_KINDS
from tracekit.model.summary import RankSummary
from tracekit.model.table import DerivedFrame, FilledTable, Frame

_OVERLAP = 0.05  # of the spans of steps: less may be what a schedule leaves to the end


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """The pipelines of a run over the steps that all ranks completed.

    Measured ratios and causes are None where ranks are missing or clocks cannot be compared.

    Attributes:
        schedule: the name of the schedule, as in docs/definitions.md.
        schedule_inferred: whether the schedule was inferred from the order of actions.
        stages: how many stages a pipeline has.
        virtual_stages: how many of them a rank has.
        microbatches: how many microbatches a step has.
        steps: how many steps were analysed.
        pipelines: how many pipelines run side by side (data parallel).
        bubble_ratio: bubbles as a share of the spans of all ranks, or of their steps where spans overlap.
        ideal_bubble_ratio: the least share for this order of equally long actions without transfers.
        ideal_basis: whether that has a closed form, or comes from a replay of the order that was run.
        bubble_to_ideal_ratio: bubbles over the time in which ranks are busy.
        filled_ratio: the share of what actions leave of single steps' spans in which ranks run actions of other steps.
            Where nothing keeps ranks together, such as a loop of forwards alone, a rank goes on with the next step at
            once.
        causes_ns: the bubbles of all ranks by cause; they sum to the bubbles.
        replay_error: the share by which a replay of all that was measured takes longer.
        uneven_stage: the stage that takes longer than the others, if one does.
        changes: changes that surely save something, the largest saving first.
        findings: what of this is worth a sentence.
        measured: the pipelines whose transfers are known and can be replayed.
        by_stage: rows of tables.PIPELINE_STAGES.
        by_rank: rows of tables.PIPELINE_RANKS.
        whatif: rows of tables.PIPELINE_WHATIF, the changes.
        typical_step: rows of tables.PIPELINE_ACTIONS, the actions of one pipeline in the step of median length.
    """

    schedule: str
    schedule_inferred: bool
    stages: int
    virtual_stages: int
    microbatches: int
    steps: int
    pipelines: int
    bubble_ratio: float | None
    ideal_bubble_ratio: float | None
    ideal_basis: Literal["closed_form", "replay"] | None
    bubble_to_ideal_ratio: float | None
    filled_ratio: float | None = None
    causes_ns: Mapping[str, int] | None
    replay_error: float | None
    uneven_stage: UnevenStage | None
    changes: tuple[PipelineChange, ...]
    findings: tuple[Finding, ...]
    measured: tuple[MeasuredPipeline, ...] = ()
    by_stage: Frame = Frame(tables.PIPELINE_STAGES)
    by_rank: Frame = Frame(tables.PIPELINE_RANKS)
    typical_step: Frame = Frame(tables.PIPELINE_ACTIONS)

    whatif = DerivedFrame(tables.PIPELINE_WHATIF, lambda result: [asdict(change) for change in result.changes])


def pipeline(run: Run) -> Pipeline | Unavailable:
    """Return the pipelines of a run; Unavailable if no rank recorded actions of one."""
    members = [summary for summary in run.ranks if summary.pipeline is not None and len(summary[ACTIONS])]
    if not members or members[0].pipeline is None:
        return Unavailable(reason="no rank recorded actions of a pipeline", expected=True)
    layout = members[0].pipeline.layout
    common = sorted(run.common_steps())
    actions = {s.rank: s[ACTIONS].rows(np.isin(s[ACTIONS].step, common)) for s in members}
    busy_ns = {rank: _busy_ns(of_rank) for rank, of_rank in actions.items()}
    side_by_side = pipeline_steps(run, members, actions)
    step_ns = {s.rank: sum(step.step_ns for step in s.steps if step.step in common) for s in members}
    overlapping = {rank for steps in side_by_side if _steps_overlap(steps) for rank in steps.ranks}
    spans_ns = {rank: _span_ns(steps) for steps in side_by_side for rank in steps.ranks}
    span_ns = {rank: step_ns[rank] if rank in overlapping else span for rank, span in spans_ns.items()}
    bubble_ns = {rank: None if span is None else span - busy_ns[rank] for rank, span in span_ns.items()}
    bubbles = [bubble for bubble in bubble_ns.values() if bubble is not None]
    spans = [span for span in span_ns.values() if span is not None]
    whole = len(bubbles) == len(members) and sum(spans) > 0
    exchanges = message_exchanges(run)
    measured = as_quickest_replica([measure_pipeline(steps, exchanges) for steps in side_by_side])
    twice_ns = {rank: (spans_ns[rank] or 0) - (span or 0) for rank, span in span_ns.items()}
    causes = [_causes(one, bubble_ns, twice_ns) for one in measured]
    known = [one for one in causes if one is not None]
    idle_by_cause_ns = {
        rank: one.idle_ns[rank_index].tolist()
        for steps, one in zip(side_by_side, causes, strict=True)
        if one is not None
        for rank_index, rank in enumerate(steps.ranks)
    }
    ranks = len(members[0].pipeline.ranks) or layout.stages // max(layout.virtual_stages, 1)
    closed_form = None if overlapping else closed_form_bubble_ratio(layout, ranks)
    replayed = sum(one.ideal_ratio for one in known) / len(known) if known else None
    ideal = replayed if closed_form is None else closed_form
    bubble_ratio = sum(bubbles) / sum(spans) if whole else None
    filled_ratio = _filled_ns(side_by_side) / max(sum(bubbles) + sum(twice_ns.values()), 1) if whole else None
    causes_ns = _sum_causes(idle_by_cause_ns.values()) if len(idle_by_cause_ns) == len(members) else None
    complete = [one for one in measured if one is not None]
    uneven = find_uneven_stage(complete, {s.rank: _compute_ns(s) for s in members}) if complete else None
    changes = find_pipeline_changes(complete, layout.virtual_stages, layout.microbatches)
    return Pipeline(
        schedule=layout.schedule,
        schedule_inferred=any(s.pipeline is not None and s.pipeline.inferred for s in members),
        stages=layout.stages,
        virtual_stages=layout.virtual_stages,
        microbatches=layout.microbatches,
        steps=len(common),
        pipelines=len(side_by_side),
        bubble_ratio=bubble_ratio,
        ideal_bubble_ratio=ideal,
        ideal_basis="closed_form" if closed_form is not None else "replay" if replayed is not None else None,
        bubble_to_ideal_ratio=sum(bubbles) / total if whole and (total := sum(busy_ns.values())) else None,
        filled_ratio=filled_ratio,
        causes_ns=causes_ns,
        replay_error=max((one.replay_error for one in known), key=abs, default=None),
        uneven_stage=uneven,
        changes=changes,
        findings=pipeline_findings(bubble_ratio, ideal, causes_ns, uneven, changes),
        measured=tuple(complete),
        by_stage=_stage_rows(list(actions.values())),
        by_rank=[_rank_row(s, busy_ns[s.rank], span_ns[s.rank], idle_by_cause_ns.get(s.rank)) for s in members],
        typical_step=_typical_step(side_by_side),
    )


def closed_form_bubble_ratio(layout: PipelineLayout, ranks: int) -> float | None:
    """Return the share of a step that equally long actions leave idle: (p-1)/(v m + p-1).

    p is the number of ranks, v of virtual stages and m of microbatches. None for schedules without a closed form.
    """
    if layout.schedule not in {"gpipe", "1f1b", "interleaved1f1b"} or not layout.microbatches:
        return None
    return (ranks - 1) / (layout.virtual_stages * layout.microbatches + ranks - 1)


def action_table(run: Run) -> FilledTable:
    """Return every action of the steps that all ranks completed."""
    common = sorted(run.common_steps())
    clocks = {clock.rank: clock for clock in run.clocks}
    rows: list[dict[str, object]] = []
    for summary in run.ranks:
        actions, clock = summary[ACTIONS].rows(np.isin(summary[ACTIONS].step, common)), clocks[summary.rank]
        values = (
            *(actions.step, actions.stage, actions.microbatch, actions.kind),
            *(clock.to_run(actions.start_ns), clock.to_run(actions.end_ns), actions.wait_ns),
        )
        rows += [_action_row(summary.rank, *row) for row in zip(*(column.tolist() for column in values), strict=True)]
    return tables.PIPELINE_ACTIONS.fill(rows)


def _action_row(
    rank: int, step: int, stage: int, microbatch: int, kind: int, start_ns: int, end_ns: int, wait_ns: int
) -> dict[str, object]:
    identity = {"rank": rank, "step": step, "stage": stage, "microbatch": microbatch, "kind": ACTION_KINDS[kind]}
    return {**identity, "start_ns": start_ns, "end_ns": end_ns, "wait_ns": wait_ns}


def _compute_ns(summary: RankSummary) -> float:
    """Return how long a rank computes in a step, the mean over its complete steps."""
    complete = [step.compute_ns for step in summary.steps if step.complete]
    return sum(complete) / len(complete) if complete else 0.0


def _busy_ns(actions: Actions) -> int:
    return Intervals.union_of(actions.start_ns, actions.end_ns).len_ns - int(actions.wait_ns.sum())


def _span_ns(steps: PipelineSteps) -> int | None:
    return None if steps.action_orders is None else sum(int(order.span_ns.sum()) for order in steps.action_orders)


def _steps_overlap(steps: PipelineSteps) -> bool:
    """Return whether the spans of a pipeline's steps cover a notable part of each other."""
    orders = steps.action_orders or ()
    begin_ns, end_ns = (
        np.concatenate([np.empty(0, dtype=np.int64), *(getattr(order, side) for order in orders)])
        for side in ("first_ns", "last_ns")
    )
    total_ns = int((end_ns - begin_ns).sum())
    return total_ns - Intervals.union_of(begin_ns, end_ns).len_ns > _OVERLAP * total_ns


def _filled_ns(side_by_side: Sequence[PipelineSteps]) -> int:
    """Return for how long ranks ran actions of one step in the spans of others."""
    filled_ns = 0
    for pipeline_of_ranks in side_by_side:
        orders = pipeline_of_ranks.action_orders or ()
        spans = [(order.first_ns, order.last_ns) for order in orders]
        if not spans:
            continue
        begin_ns, end_ns = (np.concatenate(edges) for edges in zip(*spans, strict=True))
        for rank_index in range(len(pipeline_of_ranks.ranks)):
            of_rank = [
                (o.start_ns[o.rank == rank_index].reshape(-1), o.end_ns[o.rank == rank_index].reshape(-1))
                for o in orders
            ]
            every = Intervals.union_of(*(np.concatenate(edges) for edges in zip(*of_rank, strict=True)))
            filled_ns += int(every.covered_ns(begin_ns, end_ns).sum()) - every.len_ns
    return filled_ns


def _causes(
    measured: MeasuredPipeline | None, bubble_ns: Mapping[int, int | None], twice_ns: Mapping[int, int]
) -> BubbleCauses | None:
    if measured is None:
        return None
    bubbles = [bubble for rank in measured.ranks if (bubble := bubble_ns[rank]) is not None]
    if len(bubbles) < len(measured.ranks):
        return None
    return attribute_bubbles(measured, bubbles, [twice_ns[rank] for rank in measured.ranks])


def _rank_row(
    summary: RankSummary, busy_ns: int, span_ns: int | None, causes_ns: Sequence[int] | None
) -> dict[str, object]:
    bubble_ns = None if span_ns is None else span_ns - busy_ns
    values: Sequence[int | None] = (None,) * len(CAUSES) if causes_ns is None else causes_ns
    return {
        "rank": summary.rank,
        "stages": list(summary.pipeline.layout.stage_ids) if summary.pipeline is not None else [],
        "busy_ns": busy_ns,
        "bubble_ns": bubble_ns,
        "bubble_ratio": bubble_ns / span_ns if bubble_ns is not None and span_ns else None,
        **{f"{cause}_ns": value for cause, value in zip(CAUSES, values, strict=True)},
    }


def _sum_causes(ranks: Iterable[Sequence[int]]) -> dict[str, int]:
    return {f"{cause}_ns": sum(values) for cause, values in zip(CAUSES, zip(*ranks, strict=True), strict=True)}


def _stage_rows(actions: list[Actions]) -> list[dict[str, object]]:
    every = Actions.concatenate(actions)
    rows: list[dict[str, object]] = []
    for stage in np.unique(every.stage).tolist():
        for kind, letter in enumerate(ACTION_KINDS):
            work_ns = every.work_ns[(every.stage == stage) & (every.kind == kind)]
            if len(work_ns):
                mean_ns = round(int(work_ns.sum()) / len(work_ns))
                rows.append({"stage": stage, "kind": letter, "count": len(work_ns), "mean_ns": mean_ns})
    return rows


def _typical_step(side_by_side: Sequence[PipelineSteps]) -> list[dict[str, object]]:
    """Return the actions of the step of median length, of all steps of all pipelines."""
    candidates = [
        (int(span), steps.ranks, order, number)
        for steps in side_by_side
        for order in steps.action_orders or ()
        for number, span in enumerate(order.span_ns.tolist())
    ]
    if not candidates:
        return []
    _, ranks, order, number = sorted(candidates, key=lambda c: (c[0], c[1], c[3]))[(len(candidates) - 1) // 2]
    waits_ns = order.end_ns - order.start_ns - order.work_ns
    values = (
        *(order.stage, order.microbatch, order.kind),
        *(times[:, number] for times in (order.start_ns, order.end_ns, waits_ns)),
    )
    step = int(order.steps[number])
    rows = zip(order.rank.tolist(), *(column.tolist() for column in values), strict=True)
    return [_action_row(ranks[rank_index], step, *row) for rank_index, *row in rows]
