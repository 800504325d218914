"""Predicted savings of a pipeline, against closed forms and against steps that are simulated with the change."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.exchanges import actions, rank, run_of
from tracekit.explain.pipeline.bubbles import Pipeline, pipeline
from tracekit.explain.pipeline.schedules import Order, order_of_schedule
from tracekit.explain.pipeline.tables import Actions
from tracekit.model.metadata import PipelineLayout
from tracekit.model.summary import RankSummary

FORWARD, BACKWARD = 1000, 2000
STEP = 1_000_000  # from the beginning of one to that of the next


def simulate(
    schedule: str,
    ranks: int,
    microbatches: int,
    *,
    virtual_stages: int = 1,
    slow: dict[int, int] | None = None,
    parts: int = 1,
    transfer: int = 0,
    steps: int = 2,
) -> Pipeline:
    """Return the analysis of steps that run a schedule without any disturbance.

    slow: how many times as long each stage takes. parts: into how many stages or microbatches each usual one was cut.
    """
    orders = order_of_schedule(schedule, ranks, virtual_stages, microbatches)
    assert orders is not None
    duration = {"F": FORWARD // parts, "B": BACKWARD // parts}
    each = [[] for _ in orders]
    for step in range(steps):
        for place, rows in enumerate(times(orders, duration, slow or {}, transfer)):
            for kind, stage, number, start, end in rows:
                begin = step * STEP
                row = actions((kind, number, begin + start, begin + end), stage=stage, step=5 + step)
                each[place].append(row)
    layouts = [
        PipelineLayout(
            schedule=schedule,
            stages=ranks * virtual_stages,
            virtual_stages=virtual_stages,
            microbatches=microbatches,
            stage_ids=[place + ranks * chunk for chunk in range(virtual_stages)],
        )
        for place in range(ranks)
    ]
    summaries = [
        rank(
            place,
            actions=Actions.concatenate(each[place]),
            steps=tuple(range(5, 5 + steps)),
            pipeline=layouts[place],
            pipeline_ranks=tuple(range(ranks)),
        )
        for place in range(ranks)
    ]
    begins = [
        replace(summary, steps=tuple(replace(s, start_ns=(s.step - 5) * STEP) for s in summary.steps))
        for summary in summaries
    ]
    result = pipeline(run_of(begins))
    assert result is not None
    return result


def times(
    orders: list[Order], duration: dict[str, int], slow: dict[int, int], transfer: int
) -> list[list[tuple[str, int, int, int, int]]]:
    """Return when each action of each rank begins and ends if all run as soon as they can: a loop, not the replay."""
    count = 1 + max(stage for order in orders for _, stage, _ in order)
    done: dict[tuple[str, int, int], tuple[int, int]] = {}
    free, rows = [0] * len(orders), [[] for _ in orders]
    left = [list(order) for order in orders]
    while any(left):
        for place, todo in enumerate(left):
            while todo:
                kind, stage, number = todo[0]
                source = (kind, stage - 1 if kind == "F" else stage + 1, number)
                if 0 <= source[1] < count and source not in done:
                    break
                ended, where = done.get(source, (0, place))
                start = max(free[place] if where == place else max(free[place], ended) + transfer, ended)
                end = start + duration[kind] * slow.get(stage, 1)
                done[kind, stage, number], free[place] = (end, place), end
                rows[place].append((kind, stage, number, start, end))
                todo.pop(0)
    return rows


def span_ns(result: Pipeline) -> int:
    return int(result.typical_step.end_ns.max() - result.typical_step.start_ns.min())


def changes(result: Pipeline) -> dict[str, int]:
    return {change.what: change.saves_ns_per_step for change in result.changes}


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_predicted_savings_are_those_of_steps_simulated_with_the_change(schedule: str) -> None:
    now = simulate(schedule, 4, 8)
    interleaved = simulate("interleaved1f1b", 4, 8, virtual_stages=2, parts=2)
    more = simulate(schedule, 4, 16, parts=2)
    assert (span_ns(now), span_ns(interleaved), span_ns(more)) == (33_000, 28_500, 28_500)  # (m + p-1)(F+B) ...
    assert changes(now) == {
        "the interleaved schedule with each stage cut in two": span_ns(now) - span_ns(interleaved),
        "16 microbatches of half the size": span_ns(now) - span_ns(more),
    }


def test_transfers_take_as_long_as_before() -> None:
    now = simulate("1f1b", 4, 8, transfer=300)
    interleaved = simulate("interleaved1f1b", 4, 8, virtual_stages=2, parts=2, transfer=300)
    saves = span_ns(now) - span_ns(interleaved)
    predicted = changes(now).get("the interleaved schedule with each stage cut in two", 0)
    assert predicted == pytest.approx(saves, abs=0.02 * span_ns(now))


def test_bubbles_that_the_schedule_causes_have_a_finding_with_a_remedy() -> None:
    now = simulate("gpipe", 4, 4)
    assert now.bubble_ratio == pytest.approx(3 / 7)
    (finding,) = now.findings
    assert finding.evidence["warmup_ns"] + finding.evidence["drain_ns"] == sum(now.causes_ns.values())  # type: ignore[operator,union-attr]
    best = max(now.changes, key=lambda change: change.saves_ns_per_step)
    assert (finding.saving_ns, finding.saving_error_ns) == (best.saves_ns_per_step, best.error_ns)
    assert (finding.cause, finding.action) == ("bubble", f"try {best.what}")


@pytest.mark.parametrize(("slow_replicas", "named"), [((0,), False), ((0, 1, 2), True)])
def test_a_slow_rank_is_no_uneven_stage(slow_replicas: tuple[int, ...], named: bool) -> None:
    """GIVEN three replicas of two stages WHEN stage 1 is slow in one of them only THEN moving layers would not help."""

    def replica(number: int) -> list[RankSummary]:
        orders = order_of_schedule("1f1b", 2, 1, 4)
        assert orders is not None
        rows = times(orders, {"F": FORWARD, "B": BACKWARD}, {1: 2} if number in slow_replicas else {}, 0)
        return [
            rank(
                2 * number + stage,
                actions=Actions.concatenate([actions((k, n, s, e), stage=at) for k, at, n, s, e in rows[stage]]),
                pipeline=PipelineLayout(schedule="1f1b", stages=2, virtual_stages=1, microbatches=4, stage_ids=[stage]),
                pipeline_ranks=(2 * number, 2 * number + 1),
                steps=(5,),
            )
            for stage in range(2)
        ]

    result = pipeline(run_of([*replica(0), *replica(1), *replica(2)]))
    assert isinstance(result, Pipeline)
    assert (result.uneven_stage is not None) == named
