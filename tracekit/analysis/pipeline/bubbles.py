"""Pipeline parallelism: how long each stage takes a microbatch, and how long its ranks stand idle, and why.

Comes in: a run. Goes out: `Pipeline`, over the steps that all ranks completed. In a step, W is the time from the first
to the last action over the ranks of one pipeline, on the run's clock; the bubble of a rank is W less the union of its
actions, in which waiting for a receive does not count (definitions.md, "Pipeline").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from tracekit.analysis.pipeline import columns
from tracekit.analysis.pipeline.advice import Move, UnevenStage, pipeline_findings, pipeline_moves, uneven_stage
from tracekit.analysis.pipeline.bubble_causes import (
    CAUSES,
    Causes,
    MeasuredPipeline,
    causes_of_bubbles,
    measured_pipeline,
)
from tracekit.analysis.pipeline.parts import ACTIONS, Actions
from tracekit.analysis.pipeline.steps import PipelineSteps, pipeline_steps
from tracekit.analysis.section import Unavailable
from tracekit.analysis.table import FilledTable, Frame
from tracekit.model.intervals import Intervals
from tracekit.model.metadata import PipelineLayout
from tracekit.model.run import Finding, Run
from tracekit.model.spans import ACTION_KINDS
from tracekit.model.summary import RankSummary

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Pipeline", "action_table", "closed_form_of_bubbles", "pipeline", "pipeline_actions"]


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """`by_stage`: rows of columns.PIPELINE_STAGES. `by_rank`: rows of columns.PIPELINE_RANKS. `typical_step`: of
    columns.PIPELINE_ACTIONS, the actions of one pipeline in the step of median length.

    `steps`: how many these are over; `pipelines`: how many run side by side (data parallel), `stages` each.
    `causes_ns`: the bubbles of all ranks by cause, which sum to them; `replay_error`: the share by which a replay of
    all that was measured takes longer. Ratios and causes are None where ranks are missing or clocks cannot be compared.
    The ideal ratio has a closed form, or comes from a replay of the order that was run.
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
    causes_ns: Mapping[str, int] | None
    replay_error: float | None
    uneven_stage: UnevenStage | None
    moves: tuple[Move, ...]
    findings: tuple[Finding, ...]
    by_stage: Frame = Frame(columns.PIPELINE_STAGES)
    by_rank: Frame = Frame(columns.PIPELINE_RANKS)
    typical_step: Frame = Frame(columns.PIPELINE_ACTIONS)


def pipeline(run: Run) -> Pipeline | Unavailable:
    """Unavailable if no rank recorded actions of a pipeline."""
    members = [summary for summary in run.ranks if summary.pipeline is not None and len(summary[ACTIONS])]
    if not members or members[0].pipeline is None:
        return Unavailable(reason="no rank recorded actions of a pipeline", expected=True)
    layout = members[0].pipeline.layout
    common = sorted(run.common_steps())
    actions = {s.rank: s[ACTIONS].rows(np.isin(s[ACTIONS].step, common)) for s in members}
    busy_ns = {rank: _busy_ns(own) for rank, own in actions.items()}
    side_by_side = pipeline_steps(run, members, actions)
    span_ns = {rank: _span_ns(steps) for steps in side_by_side for rank in steps.ranks}
    bubble_ns = {rank: None if span is None else span - busy_ns[rank] for rank, span in span_ns.items()}
    bubbles = [bubble for bubble in bubble_ns.values() if bubble is not None]
    spans = [span for span in span_ns.values() if span is not None]
    whole = len(bubbles) == len(members) and sum(spans) > 0
    measured = [measured_pipeline(run, steps) for steps in side_by_side]
    causes = [_causes(own, bubble_ns) for own in measured]
    known = [own for own in causes if own is not None]
    of_rank = {
        rank: own.idle_ns[place].tolist()
        for steps, own in zip(side_by_side, causes, strict=True)
        if own is not None
        for place, rank in enumerate(steps.ranks)
    }
    ranks = len(members[0].pipeline.ranks) or layout.stages // max(layout.virtual_stages, 1)
    closed_form = closed_form_of_bubbles(layout, ranks)
    replayed = sum(own.ideal_ratio for own in known) / len(known) if known else None
    ideal = replayed if closed_form is None else closed_form
    bubble_ratio = sum(bubbles) / sum(spans) if whole else None
    causes_ns = _summed(of_rank.values()) if len(of_rank) == len(members) else None
    complete = [own for own in measured if own is not None]
    uneven = uneven_stage(complete, {s.rank: _compute_ns(s) for s in members}) if complete else None
    moves = _moves(complete, layout)
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
        causes_ns=causes_ns,
        replay_error=max((own.replay_error for own in known), key=abs, default=None),
        uneven_stage=uneven,
        moves=moves,
        findings=pipeline_findings(bubble_ratio, ideal, causes_ns, uneven, moves),
        by_stage=_by_stage(list(actions.values())),
        by_rank=[_of_rank(s, busy_ns[s.rank], span_ns[s.rank], of_rank.get(s.rank)) for s in members],
        typical_step=_typical_step(side_by_side),
    )


def closed_form_of_bubbles(layout: PipelineLayout, ranks: int) -> float | None:
    """Share of a step that no order of equal actions can fill: (p-1)/(v m + p-1); None without a closed form."""
    if layout.schedule not in {"gpipe", "1f1b", "interleaved1f1b"} or not layout.microbatches:
        return None
    return (ranks - 1) / (layout.virtual_stages * layout.microbatches + ranks - 1)


def pipeline_actions(run: Run) -> pd.DataFrame:
    """Every action of the steps that all ranks completed: rows of columns.PIPELINE_ACTIONS."""
    return action_table(run).frame


def action_table(run: Run) -> FilledTable:
    """What `pipeline_actions` gives."""
    common = sorted(run.common_steps())
    clocks = {clock.rank: clock for clock in run.clocks}
    rows: list[dict[str, object]] = []
    for summary in run.ranks:
        own, clock = summary[ACTIONS].rows(np.isin(summary[ACTIONS].step, common)), clocks[summary.rank]
        values = (
            *(own.step, own.stage, own.microbatch, own.kind),
            *(clock.to_run(own.start_ns), clock.to_run(own.end_ns), own.wait_ns),
        )
        rows += [_action(summary.rank, *row) for row in zip(*(column.tolist() for column in values), strict=True)]
    return columns.PIPELINE_ACTIONS.fill(rows)


def _action(
    rank: int, step: int, stage: int, microbatch: int, kind: int, start_ns: int, end_ns: int, wait_ns: int
) -> dict[str, object]:
    what = {"rank": rank, "step": step, "stage": stage, "microbatch": microbatch, "kind": ACTION_KINDS[kind]}
    return {**what, "start_ns": start_ns, "end_ns": end_ns, "wait_ns": wait_ns}


def _compute_ns(summary: RankSummary) -> float:
    """A step, mean over the complete ones."""
    complete = [step.compute_ns for step in summary.steps if step.complete]
    return sum(complete) / len(complete) if complete else 0.0


def _busy_ns(actions: Actions) -> int:
    return Intervals.union_of(actions.start_ns, actions.end_ns).len_ns - int(actions.wait_ns.sum())


def _span_ns(steps: PipelineSteps) -> int | None:
    return None if steps.programs is None else sum(int(program.span_ns.sum()) for program in steps.programs)


def _causes(measured: MeasuredPipeline | None, bubble_ns: Mapping[int, int | None]) -> Causes | None:
    if measured is None:
        return None
    bubbles = [bubble for rank in measured.ranks if (bubble := bubble_ns[rank]) is not None]
    return causes_of_bubbles(measured, bubbles) if len(bubbles) == len(measured.ranks) else None


def _moves(pipelines: Sequence[MeasuredPipeline], layout: PipelineLayout) -> tuple[Move, ...]:
    """Of the pipeline whose steps are the longest: the others wait for it."""
    if not pipelines:
        return ()
    longest = max(pipelines, key=lambda own: max(float(program.span_ns.mean()) for program in own.programs))
    return pipeline_moves(longest, layout.virtual_stages, layout.microbatches)


def _of_rank(
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


def _summed(ranks: Iterable[Sequence[int]]) -> dict[str, int]:
    return {f"{cause}_ns": sum(values) for cause, values in zip(CAUSES, zip(*ranks, strict=True), strict=True)}


def _by_stage(actions: list[Actions]) -> list[dict[str, object]]:
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
    """The step of median length, of all steps of all pipelines."""
    candidates = [
        (int(span), steps.ranks, program, number)
        for steps in side_by_side
        for program in steps.programs or ()
        for number, span in enumerate(program.span_ns.tolist())
    ]
    if not candidates:
        return []
    _, ranks, program, number = sorted(candidates, key=lambda c: (c[0], c[1], c[3]))[(len(candidates) - 1) // 2]
    waits_ns = program.end_ns - program.start_ns - program.work_ns
    values = (
        *(program.stage, program.microbatch, program.kind),
        *(times[:, number] for times in (program.start_ns, program.end_ns, waits_ns)),
    )
    step = int(program.steps[number])
    rows = zip(program.rank.tolist(), *(column.tolist() for column in values), strict=True)
    return [_action(ranks[place], step, *row) for place, *row in rows]
