"""Pipelines of recordings whose metadata is missing."""

from __future__ import annotations

import pytest

from benchmarks.exchanges import actions, rank
from tracekit.explain.pipeline.manual_layout import with_inferred_pipelines
from tracekit.explain.pipeline.schedules import order_of_schedule
from tracekit.explain.pipeline.tables import Actions
from tracekit.model.communication import GroupKey
from tracekit.model.metadata import PipelineLayout


def of_rank(place: int, ranks: int, schedule: str = "1f1b", virtual_stages: int = 1, microbatches: int = 4) -> Actions:
    order = order_of_schedule(schedule, ranks, virtual_stages, microbatches)
    assert order is not None
    return Actions.concatenate(
        [
            actions((kind, number, 10 * at, 10 * at + 5), stage=stage)
            for at, (kind, stage, number) in enumerate(order[place])
        ]
    )


@pytest.mark.parametrize(
    ("schedule", "virtual_stages"), [("gpipe", 1), ("1f1b", 1), ("interleaved1f1b", 2), ("loopedbfs", 2)]
)
def test_the_layout_follows_from_the_actions(schedule: str, virtual_stages: int) -> None:
    inferred = with_inferred_pipelines([rank(i, actions=of_rank(i, 2, schedule, virtual_stages)) for i in range(2)], [])
    for place, summary in enumerate(inferred):
        assert summary.pipeline.layout == PipelineLayout(
            schedule=schedule,
            stages=2 * virtual_stages,
            virtual_stages=virtual_stages,
            microbatches=4,
            stage_ids=[place + 2 * chunk for chunk in range(virtual_stages)],
        )
        assert (summary.pipeline.inferred, summary.pipeline.ranks) == (True, (0, 1))


def test_process_groups_show_which_ranks_are_one_pipeline() -> None:
    """GIVEN two replicas of two stages: ranks 0 and 2 are the first stage."""
    members = [rank(i, actions=of_rank(i // 2, 2)) for i in range(4)]
    groups = [GroupKey(description=f"pp{i}", ranks=(i, i + 2)) for i in range(2)]
    data_parallel = [GroupKey(description=f"dp{i}", ranks=(2 * i, 2 * i + 1)) for i in range(2)]
    inferred = with_inferred_pipelines(members, [*data_parallel, *groups])
    assert [summary.pipeline.ranks for summary in inferred] == [(0, 2), (1, 3), (0, 2), (1, 3)]
    assert {summary.pipeline.layout.schedule for summary in inferred if summary.pipeline is not None} == {"1f1b"}


def test_without_groups_replicas_cannot_be_told_apart() -> None:
    inferred = with_inferred_pipelines([rank(i, actions=of_rank(i // 2, 2)) for i in range(4)], [])
    assert [summary.pipeline.ranks for summary in inferred] == [()] * 4
    assert {summary.pipeline.layout.schedule for summary in inferred if summary.pipeline is not None} == {"unknown"}


def test_a_pipeline_that_the_capture_described_stays_as_it_is() -> None:
    layout = PipelineLayout(schedule="zbv", stages=2, virtual_stages=1, microbatches=4, stage_ids=[0])
    members = [rank(i, actions=of_rank(i, 2), pipeline=layout, pipeline_ranks=(0, 1)) for i in range(2)]
    assert with_inferred_pipelines(members, []) == tuple(members)
