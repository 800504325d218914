"""Pipelines of recordings without tracekit's metadata: described by the actions that their spans name.

Comes in: summaries with actions that have stages. Goes out: summaries with a layout, marked as inferred: how many
stages there are, which schedule their order is of, and which ranks make up one pipeline. A group whose ranks hold each
stage once is one; without such groups all ranks together are, if they do.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from tracekit.analysis.pipeline.parts import ACTIONS
from tracekit.analysis.pipeline.schedules import Order, schedule_of_order
from tracekit.model.communication import GroupKey
from tracekit.model.events import ABSENT
from tracekit.model.metadata import PipelineLayout
from tracekit.model.spans import ACTION_KINDS
from tracekit.model.summary import PipelineMembership, RankSummary

__all__ = ["with_inferred_pipelines"]


def with_inferred_pipelines(ranks: Sequence[RankSummary], groups: Sequence[GroupKey]) -> tuple[RankSummary, ...]:
    """`groups`: of the run. The summaries as they were where the capture described the pipeline, or there is none."""
    unknown = {s.rank: s for s in ranks if s.pipeline is None and (s[ACTIONS].stage != ABSENT).any()}
    if not unknown:
        return tuple(ranks)
    stages = {rank: tuple(np.unique(s[ACTIONS].stage).tolist()) for rank, s in unknown.items()}
    count = 1 + max(stage for own in stages.values() for stage in own)
    pipelines = _pipelines(stages, groups, count)
    schedules = {ranks: _schedule([unknown[rank] for rank in ranks]) for ranks in set(pipelines.values())}
    microbatches = 1 + max(int(s[ACTIONS].microbatch.max()) for s in unknown.values())
    result = []
    for summary in ranks:
        if summary.rank in unknown:
            together = pipelines.get(summary.rank, ())
            layout = PipelineLayout(
                schedule=schedules.get(together, "unknown"),
                stages=count,
                virtual_stages=len(stages[summary.rank]),
                microbatches=microbatches,
                stage_ids=list(stages[summary.rank]),
            )
            membership = PipelineMembership(layout=layout, ranks=together, inferred=True)
            summary = replace(summary, pipeline=membership)
        result.append(summary)
    return tuple(result)


def _pipelines(
    stages: Mapping[int, tuple[int, ...]], groups: Sequence[GroupKey], count: int
) -> dict[int, tuple[int, ...]]:
    """Of each rank the ranks of its pipeline, ascending; of none where groups do not tell."""
    candidates = [tuple(sorted(group.ranks)) for group in groups] or []
    whole = [ranks for ranks in dict.fromkeys([*candidates, tuple(sorted(stages))]) if _holds_all(ranks, stages, count)]
    result: dict[int, tuple[int, ...]] = {}
    for ranks in whole:
        if any(result.get(rank, ranks) != ranks for rank in ranks):
            return {}  # a rank is in one pipeline
        result.update(dict.fromkeys(ranks, ranks))
    return result


def _holds_all(ranks: Collection[int], stages: Mapping[int, tuple[int, ...]], count: int) -> bool:
    held = [stage for rank in ranks for stage in stages.get(rank, ())]
    return set(ranks) <= stages.keys() and sorted(held) == list(range(count))


def _schedule(members: Sequence[RankSummary]) -> str:
    """Of the order in the first step that they have in common."""
    common = set.intersection(*(set(s[ACTIONS].step.tolist()) for s in members))
    if not common:
        return "unknown"
    orders: list[Order] = []
    for summary in members:
        own = summary[ACTIONS].rows(summary[ACTIONS].step == min(common))
        kinds = [ACTION_KINDS[kind] for kind in own.kind.tolist()]
        orders.append(list(zip(kinds, own.stage.tolist(), own.microbatch.tolist(), strict=True)))
    return schedule_of_order(sorted(orders, key=lambda order: min(stage for _, stage, _ in order)))
