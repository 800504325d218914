"""Which calls a probe records, by options and environment."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.capture.schedule import Schedule, schedule_from_environment
from tracekit.errors import UsageError


def test_the_default_window_skips_three_calls_warms_up_for_one_and_records_three() -> None:
    plan = Schedule().window(0)

    assert plan is not None
    assert (plan.prepare, plan.first, plan.stop) == (3, 4, 7)
    assert Schedule().calls_needed == 7
    assert Schedule().window(1) is None


@pytest.mark.parametrize(
    ("skip", "warmup", "prepare", "first"),
    [
        (3, 1, 3, 4),
        (1, 1, 1, 2),
        (0, 2, 0, 2),
        (3, 0, 2, 3),  # without a warm-up the last skipped call serves
        (0, 1, 0, 1),
        (1, 0, 0, 1),
        (0, 0, 0, 0),
    ],
)
def test_a_window_is_prepared_a_call_before_the_first_recorded_one(
    skip: int, warmup: int, prepare: int, first: int
) -> None:
    """Ranks take differently long to find the program's objects. Those that are done first would wait for the others in
    the first recorded step.
    """
    window = Schedule(skip=skip, warmup=warmup).window(0)

    assert window is not None
    assert (window.prepare, window.first) == (prepare, first)


def test_later_windows_are_prepared_before_their_first_call_where_there_is_one_between() -> None:
    far = Schedule(skip=2, warmup=0, steps=2, repeat=2, every=5).window(1)
    near = Schedule(skip=2, warmup=0, steps=2, repeat=2).window(1)

    assert far is not None
    assert near is not None
    assert (far.prepare, far.first) == (6, 7)
    assert (near.prepare, near.first) == (4, 4)


@given(skip=st.integers(0, 9), warmup=st.integers(0, 9), steps=st.integers(1, 9), repeat=st.integers(1, 4))
def test_recordings_never_overlap_and_each_holds_its_steps(skip: int, warmup: int, steps: int, repeat: int) -> None:
    schedule = Schedule(skip=skip, warmup=warmup, steps=steps, repeat=repeat)
    busy_until = 0

    for index in range(repeat):
        plan = schedule.window(index)
        assert plan is not None
        assert busy_until <= plan.prepare <= plan.first
        assert plan.steps == steps
        busy_until = plan.stop


@pytest.mark.parametrize(
    "options", [{"steps": 0}, {"skip": -1}, {"warmup": -1}, {"repeat": 0}, {"every": 3}, {"steps": 1.5}]
)
def test_invalid_options_raise_as_the_probe_is_created(options: dict[str, int]) -> None:
    with pytest.raises(UsageError, match=next(iter(options))):
        Schedule(**options)


def test_the_environment_overrides_the_options() -> None:
    environment = {"TRACEKIT_SKIP": "0", "TRACEKIT_WARMUP": "2", "TRACEKIT_STEPS": "5"}

    schedule = schedule_from_environment(Schedule(repeat=2), environment, pytest.fail)

    assert schedule == Schedule(skip=0, warmup=2, steps=5, repeat=2)


def test_a_typing_error_in_the_environment_is_reported_and_does_not_stop_the_job() -> None:
    warnings: list[str] = []

    schedule = schedule_from_environment(Schedule(), {"TRACEKIT_SKIP": "x", "TRACEKIT_STEPS": "0"}, warnings.append)

    assert schedule == Schedule()
    assert [text.partition("=")[0] for text in warnings] == ["TRACEKIT_SKIP", "TRACEKIT_STEPS"]


def test_a_window_can_be_postponed() -> None:
    plan = Schedule(skip=2, warmup=1, steps=2).window(0)

    assert plan is not None
    assert (plan.shifted(5).prepare, plan.shifted(5).first, plan.shifted(5).stop) == (7, 8, 10)
