"""What counts as a false finding on a pipeline in which nothing is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.studies.healthy_pipelines import HealthyRun, judge, table

BUBBLES = {"text": "bubbles take 30% of the pipeline's time: warm-up and drain 27%", "cause": "bubble", "ranks": []}


NOTHING = {"text": "nothing stands out: compute takes 88% of the step", "cause": None, "ranks": []}


def result_with(*findings: dict[str, Any], uneven_stage: object = None, schedule: str = "zbv") -> dict[str, Any]:
    pipeline = {"schedule": schedule, "bubble_ratio": 0.3, "ideal_bubble_ratio": 0.27, "uneven_stage": uneven_stage}
    pipeline |= {"causes": {"warmup_ns": 140, "drain_ns": 130, "imbalance_ns": 30}}
    return {"findings": list(findings), "pipeline": pipeline, "run": {"step_ns": {"median": 400_000_000}}}


def test_bubbles_and_nothing_are_true() -> None:
    run = judge("zbv", result_with(BUBBLES))

    assert run == judge("zbv", result_with(NOTHING))
    assert (run.false, run.step_ms, run.bubble_ratio, run.ideal_ratio) == ((), 400.0, 0.3, 0.27)
    assert run.uneven_ratio == pytest.approx(0.03)


@pytest.mark.parametrize(
    ("text", "cause", "ranks"),
    [
        ("the link from rank 0 to rank 3 takes 15 times as long", "link", [0, 3]),
        ("transfers that nothing hides take 13% of the step", "transfer", []),
        ("ranks take turns at being late", "variation", []),
    ],
)
def test_what_names_somebody_or_a_cause_that_was_not_planted_is_false(text: str, cause: str, ranks: list[int]) -> None:
    run = judge("zbv", result_with(BUBBLES, {"text": text, "cause": cause, "ranks": ranks}))

    assert run.false == (text,)


def test_an_uneven_stage_and_another_schedule_are_false() -> None:
    run = judge("zbv", result_with(uneven_stage={"stage": 1}, schedule="1f1b"))

    assert run.false == ("a stage is uneven", "the schedule is 1f1b")


def test_the_table_counts_runs_with_false_findings_by_schedule() -> None:
    runs = [
        HealthyRun(
            schedule=schedule,
            step_ms=400 + i,
            bubble_ratio=0.25 + i / 100,
            ideal_ratio=0.2,
            uneven_ratio=i / 100,
            false=false,
        )
        for i, (schedule, false) in enumerate((("zbv", ()), ("zbv", ("a", "b")), ("gpipe", ())))
    ]

    _, *rows = table(runs)

    assert rows == [
        ("zbv", "2", "1", "400", "25.5%", "20.0%", "0.5%"),
        ("gpipe", "1", "0", "402", "27.0%", "20.0%", "2.0%"),
        ("all", "3", "1", "", "", "", ""),
    ]
