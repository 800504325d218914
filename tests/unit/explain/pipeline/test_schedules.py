"""Orders of schedules: those of torch are recognised, and ours are the same."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tracekit.explain.pipeline.schedules import ORDERED_SCHEDULES, Order, order_of_schedule, schedule_of_order

SIZES = [(2, 4), (2, 8), (3, 6), (4, 8), (4, 16), (8, 16)]
IN_A_LOOP = {
    "interleaved1f1b": "ScheduleInterleaved1F1B",
    "loopedbfs": "ScheduleLoopedBFS",
    "interleavedzerobubble": "ScheduleInterleavedZeroBubble",
}
IN_A_V = {"zbv": "ScheduleZBVZeroBubble", "dualpipev": "ScheduleDualPipeV"}
LETTERS = {"FORWARD": "F", "FULL_BACKWARD": "B", "BACKWARD_INPUT": "I", "BACKWARD_WEIGHT": "W"}


def torch_order(schedule: str, ranks: int, virtual_stages: int, microbatches: int) -> list[Order]:
    """Return the order that `torch.distributed.pipelining` would run."""
    schedules = pytest.importorskip("torch.distributed.pipelining.schedules")
    count = ranks * virtual_stages
    numbers = [0, count - 1] if schedule in IN_A_V else range(0, count, ranks)
    stages = [
        SimpleNamespace(
            stage_index=number,
            num_stages=count,
            group_size=ranks,
            group_rank=0,
            is_first=number == 0,
            is_last=number == count - 1,
            stage_index_to_group_rank={},
            has_backward=False,
            submod=None,
            group=None,
            device="cpu",
        )
        for number in numbers
    ]
    schedule_of_torch = getattr(schedules, {**IN_A_LOOP, **IN_A_V}[schedule])(
        stages, microbatches, loss_fn=lambda *_: 0
    )
    return [
        [part for action in schedule_of_torch.pipeline_order[rank] for part in letters(action)] for rank in range(ranks)
    ]


def letters(action: Any) -> Order:
    parts = () if action is None else getattr(action, "sub_actions", None) or (action,)
    names = [(LETTERS.get(part.computation_type.name), part.stage_index, part.microbatch_index) for part in parts]
    return [(letter, stage, number) for letter, stage, number in names if letter is not None]


@pytest.mark.parametrize(("ranks", "microbatches"), SIZES)
@pytest.mark.parametrize("schedule", [*IN_A_LOOP, *IN_A_V])
def test_an_order_of_torch_is_recognised(schedule: str, ranks: int, microbatches: int) -> None:
    assert schedule_of_order(torch_order(schedule, ranks, 2, microbatches)) == schedule


@pytest.mark.parametrize("virtual_stages", [2, 3])
@pytest.mark.parametrize(("ranks", "microbatches"), SIZES)
@pytest.mark.parametrize("schedule", ["interleaved1f1b", "loopedbfs"])
def test_the_order_of_a_schedule_is_torchs(schedule: str, ranks: int, microbatches: int, virtual_stages: int) -> None:
    expected = torch_order(schedule, ranks, virtual_stages, microbatches)
    assert order_of_schedule(schedule, ranks, virtual_stages, microbatches) == expected


@pytest.mark.parametrize(("ranks", "microbatches"), SIZES)
def test_gpipe_and_1f1b_are_told_apart(ranks: int, microbatches: int) -> None:
    for schedule in ("gpipe", "1f1b"):
        order = order_of_schedule(schedule, ranks, 1, microbatches)
        assert order is not None
        assert schedule_of_order(order) == schedule
    assert schedule_of_order([[a for a in rank_order if a[0] == "F"] for rank_order in order]) == "gpipe"


def test_backwards_of_gpipe_may_run_in_reverse() -> None:
    order = order_of_schedule("gpipe", 2, 1, 3)
    assert order is not None
    assert schedule_of_order([[*rank_order[:3], *rank_order[:2:-1]] for rank_order in order]) == "gpipe"


@pytest.mark.parametrize("schedule", ORDERED_SCHEDULES)
def test_an_order_that_fits_no_schedule_or_several_is_unknown(schedule: str) -> None:
    virtual_stages = 2 if schedule in IN_A_LOOP else 1
    order = order_of_schedule(schedule, 2, virtual_stages, 4)
    assert order is not None
    assert schedule_of_order([[rank_order[1], rank_order[0], *rank_order[2:]] for rank_order in order]) == "unknown"
    assert schedule_of_order([order[0]]) == "unknown"
    assert schedule_of_order([[a for a in rank_order if a[0] == "B"] for rank_order in order]) == "unknown"
    alone = order_of_schedule(schedule, 2, virtual_stages, 1)
    assert alone is not None
    assert schedule_of_order(alone) == "unknown"


def test_a_schedule_without_such_stages_or_microbatches_has_no_order() -> None:
    assert order_of_schedule("1f1b", 4, 2, 8) is None
    assert order_of_schedule("interleaved1f1b", 4, 1, 8) is None
    assert order_of_schedule("interleaved1f1b", 4, 2, 9) is None
