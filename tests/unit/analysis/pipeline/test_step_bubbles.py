"""Bubbles of one step, each with its cause: on schedules built by hand, and in sum those of all ranks."""

from __future__ import annotations

from tests.unit.analysis.exchanges import actions, rank, run_of
from tracekit.analysis.pipeline.bubble_causes import StepBubble, attribute_bubbles, step_bubbles
from tracekit.analysis.pipeline.bubbles import Pipeline, pipeline
from tracekit.analysis.pipeline.parts import Actions
from tracekit.model.metadata import PipelineLayout


def two_stages(first: Actions, second: Actions) -> Pipeline:
    layouts = [
        PipelineLayout(schedule="gpipe", stages=2, virtual_stages=1, microbatches=2, stage_ids=[stage])
        for stage in (0, 1)
    ]
    members = [
        rank(number, actions=of_rank, pipeline=layout, pipeline_ranks=(0, 1))
        for number, (of_rank, layout) in enumerate(zip((first, second), layouts, strict=True))
    ]
    result = pipeline(run_of(members))
    assert isinstance(result, Pipeline)
    return result


def even_stages() -> Pipeline:
    """Return two microbatches, forward 10 and backward 20, without transfers.

    rank 0   F0 F1         B0   B1     0-10, 10-20, 50-70, 70-90
    rank 1      F0 F1 B0   B1          10-20, 20-30, 30-50, 50-70
    """
    first = actions(("F", 0, 0, 10), ("F", 1, 10, 20), ("B", 0, 50, 70), ("B", 1, 70, 90))
    second = actions(("F", 0, 10, 20), ("F", 1, 20, 30), ("B", 0, 30, 50), ("B", 1, 50, 70), stage=1)
    return two_stages(first, second)


def test_what_the_schedule_costs_is_warm_up_and_drain() -> None:
    (measured,) = even_stages().measured
    step = int(measured.action_orders[0].steps[0])

    assert step_bubbles(measured, step) == [
        StepBubble(rank=0, start_ns=20, end_ns=50, cause="warmup"),
        StepBubble(rank=1, start_ns=0, end_ns=10, cause="warmup"),
        StepBubble(rank=1, start_ns=70, end_ns=90, cause="drain"),
    ]


def test_bubbles_are_as_long_as_those_of_the_ranks() -> None:
    (measured,) = (result := even_stages()).measured
    step = int(measured.action_orders[0].steps[0])

    lengths_ns = [0, 0]
    for bubble in step_bubbles(measured, step):
        lengths_ns[bubble.rank] += bubble.end_ns - bubble.start_ns

    assert lengths_ns == result.by_rank["bubble_ns"].tolist()
    assert attribute_bubbles(measured, lengths_ns).idle_ns.sum(axis=1).tolist() == lengths_ns


def test_a_stage_that_takes_longer_makes_the_other_wait_for_it() -> None:
    """GIVEN a second stage that takes four times as long WHEN the first waits for it THEN the cause is imbalance."""
    first = actions(("F", 0, 0, 10), ("F", 1, 10, 20), ("B", 0, 170, 180), ("B", 1, 210, 220))
    second = actions(("F", 0, 10, 50), ("F", 1, 50, 90), ("B", 0, 130, 170), ("B", 1, 170, 210), stage=1)
    (measured,) = two_stages(first, second).measured
    step = int(measured.action_orders[0].steps[0])

    causes = {(bubble.rank, bubble.start_ns): bubble.cause for bubble in step_bubbles(measured, step)}

    assert causes[0, 180] == "imbalance"  # between its two backwards
    assert causes[1, 90] == "other"  # nothing that the replays know holds up its first backward


def test_another_step_has_no_bubbles() -> None:
    (measured,) = even_stages().measured

    assert step_bubbles(measured, 99) == []
