"""Infers the layout of pipelines that were recorded without tracekit's metadata, from the actions that spans name.

The ranks of a process group are one pipeline if they hold each stage once. Without such groups all ranks together are
one, if they hold each stage once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from tracekit.analysis.pipeline.layout.schedules import Order, schedule_of_order
from tracekit.analysis.pipeline.tables import ACTIONS, Actions
from tracekit.model.communication import GroupKey
from tracekit.model.events import ABSENT
from tracekit.model.metadata import PipelineLayout
from tracekit.model.spans import ACTION_KINDS
from tracekit.model.summary import PipelineMembership, RankSummary

__all__ = ["schedule_of_actions", "with_inferred_pipelines"]


def with_inferred_pipelines(ranks: Sequence[RankSummary], groups: Sequence[GroupKey]) -> tuple[RankSummary, ...]:
    """Return the summaries with inferred layouts: stages, schedule and ranks of each pipeline.

    Summaries stay as they are if the capture described the pipeline, or if there is none. groups: those of the run.
    """
    unknown = {s.rank: s for s in ranks if s.pipeline is None and (s[ACTIONS].stage != ABSENT).any()}
    if not unknown:
        return tuple(ranks)
    stages = {rank: tuple(np.unique(s[ACTIONS].stage).tolist()) for rank, s in unknown.items()}
    count = 1 + max(stage for of_rank in stages.values() for stage in of_rank)
    pipelines = _pipelines(stages, groups, count)
    schedules = {
        ranks: schedule_of_actions([unknown[rank][ACTIONS] for rank in ranks]) for ranks in set(pipelines.values())
    }
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
    """Return the ranks of each rank's pipeline, ascending; empty where groups do not tell."""
    candidates = [tuple(sorted(group.ranks)) for group in groups] or []
    whole = [ranks for ranks in dict.fromkeys([*candidates, tuple(sorted(stages))]) if _holds_all(ranks, stages, count)]
    result: dict[int, tuple[int, ...]] = {}
    for ranks in whole:
        if any(result.get(rank, ranks) != ranks for rank in ranks):
            return {}  # a rank cannot be in two pipelines
        result.update(dict.fromkeys(ranks, ranks))
    return result


def _holds_all(ranks: Collection[int], stages: Mapping[int, tuple[int, ...]], count: int) -> bool:
    """Return whether the ranks hold each of `count` stages once."""
    held = [stage for rank in ranks for stage in stages.get(rank, ())]
    return set(ranks) <= stages.keys() and sorted(held) == list(range(count))


def schedule_of_actions(ranks: Sequence[Actions]) -> str:
    """Return the schedule of the order in the first step that the ranks of a pipeline have in common."""
    common = set.intersection(*(set(actions.step.tolist()) for actions in ranks))
    if not common:
        return "unknown"
    orders: list[Order] = []
    for of_rank in ranks:
        actions = of_rank.rows(of_rank.step == min(common))
        kinds = [ACTION_KINDS[kind] for kind in actions.kind.tolist()]
        orders.append(list(zip(kinds, actions.stage.tolist(), actions.microbatch.tolist(), strict=True)))
    return schedule_of_order(sorted(orders, key=lambda order: min(stage for _, stage, _ in order)))
