"""Bubbles of a pipeline: exact on schedules built by hand, and in sum on random actions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.exchanges import actions, clocks, rank, run_of
from tracekit.explain.pipeline.bubble_causes import CAUSES
from tracekit.explain.pipeline.bubbles import Pipeline, closed_form_bubble_ratio, pipeline
from tracekit.explain.pipeline.tables import Actions
from tracekit.explain.section import Unavailable
from tracekit.model.metadata import PipelineLayout
from tracekit.model.run import Run
from tracekit.model.spans import ACTION_KINDS


def layout(schedule: str, stages: int, microbatches: int, stage: int = 0, virtual_stages: int = 1) -> PipelineLayout:
    return PipelineLayout(
        schedule=schedule,
        stages=stages,
        virtual_stages=virtual_stages,
        microbatches=microbatches,
        stage_ids=[stage],
    )


def two_stages(first: Actions, second: Actions, **others: Any) -> Run:
    ranks = [
        rank(i, actions=of_rank, pipeline=layout("gpipe", 2, 2, i), pipeline_ranks=(0, 1))
        for i, of_rank in enumerate((first, second))
    ]
    return run_of(ranks, **others)


def analysed(run: Run) -> Pipeline:
    result = pipeline(run)
    assert result is not None
    return result


def gpipe(shift_ns: int = 0) -> tuple[Actions, Actions]:
    """Return the actions of two microbatches, forward 10 and backward 20, without transfers.

    stage 0   F0 F1         B0   B1     0-10, 10-20, 50-70, 70-90
    stage 1      F0 F1 B0   B1          10-20, 20-30, 30-50, 50-70
    """
    first = (("F", 0, 0, 10), ("F", 1, 10, 20), ("B", 0, 50, 70), ("B", 1, 70, 90))
    second = (("F", 0, 10, 20), ("F", 1, 20, 30), ("B", 0, 30, 50), ("B", 1, 50, 70))
    later = tuple((kind, microbatch, start + shift_ns, end + shift_ns) for kind, microbatch, start, end in second)
    return actions(*first), actions(*later, stage=1)


def test_a_known_clock_offset_changes_nothing() -> None:
    result = analysed(two_stages(*gpipe(shift_ns=7_000), clocks=tuple(clocks(2, offsets_ns=[0, 7_000]))))
    assert result.bubble_ratio == pytest.approx(1 / 3)


def test_waiting_inside_an_action_is_a_bubble() -> None:
    first, _ = gpipe()
    result = analysed(two_stages(first, actions(("F", 0, 0, 90), stage=1, wait_ns=60)))
    assert result.by_rank[["busy_ns", "bubble_ns"]].to_numpy().tolist() == [[60, 30], [30, 60]]


def test_without_one_of_its_ranks_a_pipeline_has_durations_but_no_bubbles() -> None:
    first, _ = gpipe()
    result = analysed(run_of([rank(0, actions=first, pipeline=layout("gpipe", 2, 2), pipeline_ranks=(0, 1))]))
    assert (result.bubble_ratio, result.bubble_to_ideal_ratio) == (None, None)
    assert result.by_rank["bubble_ns"].isna().all()
    assert result.by_rank["busy_ns"].tolist() == [60]
    assert result.ideal_bubble_ratio == pytest.approx(1 / 3)


@pytest.mark.parametrize(("every", "filled"), [(20, True), (30, False)])
def test_time_that_other_steps_fill_is_no_bubble(every: int, filled: bool) -> None:
    """GIVEN forwards alone. Where nothing keeps the ranks together, a step begins as the stage has done the one before.

    stage 0   F0 F1 f0 f1         stage 0   F0 F1    f0 f1
    stage 1      F0 F1 f0 f1      stage 1      F0 F1    f0 f1
    """
    ranks = []
    for i in (0, 1):
        steps = [
            actions(*(("F", n, begin + 10 * n, begin + 10 * n + 10) for n in (0, 1)), stage=i, step=step)
            for step in range(5)
            if (begin := every * step + 10 * i) >= 0
        ]
        together = Actions.concatenate(steps)
        described = layout("manual", 2, 2, i)
        summary = rank(i, actions=together, steps=tuple(range(5)), pipeline=described, pipeline_ranks=(0, 1))
        ranks.append(replace(summary, steps=tuple(replace(step, step_ns=every) for step in summary.steps)))
    result = analysed(run_of(ranks))

    assert (result.bubble_ratio, result.ideal_bubble_ratio) == pytest.approx((0, 0) if filled else (1 / 3, 1 / 3))
    assert result.filled_ratio == pytest.approx(4 / 5 if filled else 0)


def test_without_actions_there_is_no_pipeline() -> None:
    assert isinstance(pipeline(run_of([rank(0), rank(1)])), Unavailable)


@pytest.mark.parametrize(
    ("schedule", "ranks", "microbatches", "virtual_stages", "ratio"),
    [
        ("gpipe", 4, 8, 1, 3 / 11),
        ("1f1b", 4, 8, 1, 3 / 11),
        ("interleaved1f1b", 4, 8, 2, 3 / 19),
        ("1f1b", 1, 8, 1, 0.0),
        ("zbv", 4, 8, 2, None),
        ("manual", 4, 8, 1, None),
        ("1f1b", 4, 0, 1, None),
    ],
)
def test_the_ideal_has_a_closed_form_for_some_schedules(
    schedule: str, ranks: int, microbatches: int, virtual_stages: int, ratio: float | None
) -> None:
    described = layout(schedule, ranks * virtual_stages, microbatches, virtual_stages=virtual_stages)
    assert closed_form_bubble_ratio(described, ranks) == (None if ratio is None else pytest.approx(ratio))


def causes(result: Pipeline) -> dict[int, dict[str, int]]:
    """Return the causes of each rank that are not 0."""
    return {
        row["rank"]: {cause: row[f"{cause}_ns"] for cause in CAUSES if row[f"{cause}_ns"]}
        for row in result.by_rank.to_dict("records")
    }


def test_a_slower_stage_makes_the_other_wait() -> None:
    """Stage 1 takes 20 forward and 40 backward, stage 0 10 and 20: equal stages would take 15 and 30.

    stage 0   F0 F1             B0      B1        0-10, 10-20, 90-110, 130-150
    stage 1      F0  F1  B0     B1                10-30, 30-50, 50-90, 90-130
    """
    first = actions(("F", 0, 0, 10), ("F", 1, 10, 20), ("B", 0, 90, 110), ("B", 1, 130, 150))
    second = actions(("F", 0, 10, 30), ("F", 1, 30, 50), ("B", 0, 50, 90), ("B", 1, 90, 130), stage=1)
    result = analysed(two_stages(first, second))
    assert causes(result) == {0: {"warmup": 45, "imbalance": 45}, 1: {"warmup": 15, "drain": 30, "imbalance": -15}}
    assert result.uneven_stage is not None
    assert (result.uneven_stage.stage, result.uneven_stage.ranks, result.uneven_stage.factor) == (1, (1,), 2.0)
    assert (result.findings[0].rank, result.findings[0].remedy) == (1, "stages")
    assert result.uneven_stage.saves_ns_per_step == 150 - 90  # at the pace of stage 0


def test_delays_that_the_mean_hides_are_late_peers() -> None:
    """GIVEN stages of 12.5 on average, for which a step would take 37.5 WHEN each delays the other in turn.

    stage 0   F0 F1           0-10, 10-30        F0 F1          0-10, 10-20
    stage 1      F0   F1      10-20, 30-40          F0    F1    10-30, 30-40
    """
    first = [actions(("F", 0, 0, 10), ("F", 1, 10, 30)), actions(("F", 0, 100, 110), ("F", 1, 110, 120), step=6)]
    second = [
        actions(("F", 0, 10, 20), ("F", 1, 30, 40), stage=1),
        actions(("F", 0, 110, 130), ("F", 1, 130, 140), stage=1, step=6),
    ]
    ranks = [
        rank(
            i,
            actions=Actions.concatenate(steps),
            steps=(5, 6),
            pipeline=layout("gpipe", 2, 2, i),
            pipeline_ranks=(0, 1),
        )
        for i, steps in enumerate((first, second))
    ]
    assert causes(analysed(run_of(ranks))) == {0: {"drain": 25, "late_peer": 5}, 1: {"warmup": 25, "late_peer": 5}}


def test_idle_time_that_no_dependency_explains_is_other() -> None:
    """GIVEN rank 0, which runs its second forward 7 late for no reason THEN all that follows is late by 7."""
    first = actions(("F", 0, 0, 10), ("F", 1, 17, 27), ("B", 0, 57, 77), ("B", 1, 77, 97))
    second = actions(("F", 0, 10, 20), ("F", 1, 27, 37), ("B", 0, 37, 57), ("B", 1, 57, 77), stage=1)
    result = analysed(two_stages(first, second))
    assert causes(result) == {0: {"warmup": 30, "other": 7}, 1: {"warmup": 10, "drain": 20, "other": 7}}


TIMES = st.tuples(st.integers(0, 500), st.integers(1, 100))


@given(microbatches=st.lists(st.tuples(TIMES, TIMES), min_size=1, max_size=6))
def test_busy_time_and_bubbles_fill_the_span_of_the_pipeline(
    microbatches: list[tuple[tuple[int, int], tuple[int, int]]],
) -> None:
    first, second = zip(*microbatches, strict=True)
    by_stage = [
        actions(*(("F", i, at, at + took) for i, (at, took) in enumerate(sorted(times))), stage=stage)
        for stage, times in enumerate((first, second))
    ]
    result = analysed(two_stages(*by_stage))
    every = [*first, *second]
    span_ns = max(at + took for at, took in every) - min(at for at, _ in every)
    rows = result.by_rank.to_dict("records")
    assert [row["busy_ns"] + row["bubble_ns"] for row in rows] == [span_ns, span_ns]
    covered = [{t for at, took in times for t in range(at, at + took)} for times in (first, second)]
    assert [row["busy_ns"] for row in rows] == list(map(len, covered))
    assert result.bubble_ratio == pytest.approx(sum(row["bubble_ns"] for row in rows) / (2 * span_ns))
    assert [sum(row[f"{cause}_ns"] for cause in CAUSES) for row in rows] == [row["bubble_ns"] for row in rows]


def test_a_first_stage_that_does_not_learn_has_no_backward() -> None:
    first, second = gpipe()
    result = analysed(two_stages(first.rows(first.kind == ACTION_KINDS.index("F")), second))
    assert result.causes_ns is not None
