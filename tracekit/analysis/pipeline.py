"""Pipeline parallelism: how long each stage takes a microbatch, and how long its ranks stand idle.

Comes in: a run. Goes out: `Pipeline`, over the steps that all ranks completed. In a step, W is the time from the first
to the last action over the ranks of one pipeline, on the run's clock; the bubble of a rank is W less the union of its
actions, in which waiting for a receive does not count (definitions.md, "Pipeline").
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tracekit import schema
from tracekit.analysis.align import on_run_clock
from tracekit.analysis.messages import comparable_clocks
from tracekit.model.actions import ACTION_KINDS, Actions
from tracekit.model.intervals import Intervals
from tracekit.model.metadata import PipelineLayout
from tracekit.model.run import Run
from tracekit.model.summary import RankSummary

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Pipeline", "ideal_bubble_ratio", "pipeline"]


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """`by_stage`: columns of schema.PIPELINE_STAGES. `by_rank`: columns of schema.PIPELINE_RANKS.

    `steps`: how many both are over; `pipelines`: how many run side by side (data parallel), `stages` each. Ratios are
    None where ranks are missing or clocks cannot be compared; the ideal one, too, where it has no closed form.
    """

    schedule: str
    stages: int
    virtual_stages: int
    microbatches: int
    steps: int
    pipelines: int
    bubble_ratio: float | None
    ideal_bubble_ratio: float | None
    bubble_to_ideal_ratio: float | None
    by_stage: pd.DataFrame
    by_rank: pd.DataFrame


def pipeline(run: Run) -> Pipeline | None:
    """None if no rank recorded actions of a pipeline."""
    members = [summary for summary in run.ranks if summary.pipeline is not None and len(summary.actions)]
    if not members:
        return None
    layout = members[0].pipeline
    assert layout is not None
    common = run.common_steps()
    actions = {s.rank: s.actions.rows(np.isin(s.actions.step, sorted(common))) for s in members}
    busy_ns = {rank: _busy_ns(own) for rank, own in actions.items()}
    span_ns = _spans(run, members, actions)
    bubble_ns = {rank: None if span is None else span - busy_ns[rank] for rank, span in span_ns.items()}
    bubbles = [bubble for bubble in bubble_ns.values() if bubble is not None]
    spans = [span for span in span_ns.values() if span is not None]
    whole = len(bubbles) == len(members) and sum(spans) > 0
    ranks = len(members[0].pipeline_ranks) or layout.stages // max(layout.virtual_stages, 1)
    return Pipeline(
        schedule=layout.schedule,
        stages=layout.stages,
        virtual_stages=layout.virtual_stages,
        microbatches=layout.microbatches,
        steps=len(common),
        pipelines=len({summary.pipeline_ranks for summary in members}),
        bubble_ratio=sum(bubbles) / sum(spans) if whole else None,
        ideal_bubble_ratio=ideal_bubble_ratio(layout, ranks),
        bubble_to_ideal_ratio=sum(bubbles) / total if whole and (total := sum(busy_ns.values())) else None,
        by_stage=schema.PIPELINE_STAGES.frame(_by_stage(list(actions.values()))),
        by_rank=schema.PIPELINE_RANKS.frame(
            [
                {
                    "rank": summary.rank,
                    "stages": list(summary.pipeline.stage_ids) if summary.pipeline is not None else [],
                    "busy_ns": busy_ns[summary.rank],
                    "bubble_ns": (bubble := bubble_ns[summary.rank]),
                    "bubble_ratio": bubble / span if bubble is not None and (span := span_ns[summary.rank]) else None,
                }
                for summary in members
            ]
        ),
    )


def ideal_bubble_ratio(layout: PipelineLayout, ranks: int) -> float | None:
    """Share of a step that no order of equal actions can fill: (p-1)/(v m + p-1); None without a closed form."""
    if layout.schedule not in {"gpipe", "1f1b", "interleaved1f1b"} or not layout.microbatches:
        return None
    return (ranks - 1) / (layout.virtual_stages * layout.microbatches + ranks - 1)


def _busy_ns(actions: Actions) -> int:
    return Intervals.union_of(actions.start_ns, actions.end_ns).len_ns - int(actions.wait_ns.sum())


def _spans(run: Run, members: list[RankSummary], actions: dict[int, Actions]) -> dict[int, int | None]:
    """For each rank the sum of W over the steps of its pipeline; None where that cannot be known."""
    clocks = {clock.rank: clock for clock in run.clocks}
    by_pipeline: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for summary in members:
        by_pipeline[summary.pipeline_ranks].append(summary.rank)
    result: dict[int, int | None] = {}
    for expected, ranks in by_pipeline.items():
        known = [summary for summary in run.ranks if summary.rank in ranks]
        complete = set(expected) == set(ranks) and all(len(actions[rank]) for rank in ranks)
        span_ns: int | None = None
        if complete and comparable_clocks(known, [clocks[rank] for rank in ranks]):
            step = np.concatenate([actions[rank].step for rank in ranks])
            start_ns = np.concatenate([on_run_clock(actions[rank].start_ns, clocks[rank]) for rank in ranks])
            end_ns = np.concatenate([on_run_clock(actions[rank].end_ns, clocks[rank]) for rank in ranks])
            span_ns = sum(int(end_ns[step == k].max() - start_ns[step == k].min()) for k in np.unique(step))
        result.update(dict.fromkeys(ranks, span_ns))
    return result


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
