"""Which of the job's steps the first call of a probe is: said by the user, by a framework, or by the optimizers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tracekit.capture.hooks.live_objects import LiveObjects
from tracekit.capture.job.run_agreement import AgreedStep
from tracekit.capture.probe import probe
from tracekit.capture.schedule import StepNumbers
from tracekit.errors import UsageError
from tracekit.integrations.loop import RecordedLoop


class Training:
    """A model with optimizers, `steps` of which have been made before a checkpoint was saved and loaded again."""

    def __init__(self, torch: Any, steps: int, kinds: tuple[str, ...] = ("Adam",)) -> None:
        self.torch = torch
        self.model = torch.nn.Linear(2, 2)
        makers = [getattr(torch.optim, kind) for kind in kinds]
        self.optimizers = [make(self.model.parameters(), lr=0.1) for make in makers]
        for _ in range(steps):
            self.step()
        saved = [optimizer.state_dict() for optimizer in self.optimizers]
        self.optimizers = [make(self.model.parameters(), lr=0.1) for make in makers]
        for optimizer, state in zip(self.optimizers, saved, strict=True):
            optimizer.load_state_dict(state)

    def step(self) -> None:
        self.model(self.torch.ones(2)).sum().backward()
        for optimizer in self.optimizers:
            optimizer.step()
        self.model.zero_grad()

    @property
    def objects(self) -> LiveObjects:
        return LiveObjects(search=lambda: [self.model, *self.optimizers])


def first_of(traces: list[dict[str, Any]]) -> list[tuple[int, str, list[int]]]:
    """The first step, who said it, and the numbers of the recorded steps, of each trace."""
    return [
        (known["first_step"], known["first_step_source"], [step["step"] for step in known["steps"]])
        for trace in traces
        if (known := trace["tracekit"])
    ]


@pytest.mark.parametrize("kinds", [("Adam",), ("AdamW", "Adam"), ("SGD", "Adam")])
def test_optimizers_tell_where_a_job_has_resumed(torch: Any, kinds: tuple[str, ...]) -> None:
    training = Training(torch, steps=7, kinds=kinds)
    numbers = StepNumbers()

    numbers.begin(0, training.objects)
    for _ in range(3):
        training.step()
    numbers.check(3, training.objects)

    assert numbers.first == AgreedStep(first_step=7, source="optimizer")
    assert numbers.note is None


@pytest.mark.parametrize(("steps", "kinds"), [(0, ("Adam",)), (7, ("SGD",))])
def test_without_a_count_steps_are_counted_from_0(torch: Any, steps: int, kinds: tuple[str, ...]) -> None:
    numbers = StepNumbers()
    numbers.begin(0, Training(torch, steps, kinds).objects)

    assert numbers.first == AgreedStep(first_step=0, source="calls")


@pytest.mark.parametrize("steps_a_call", [0, 2])
def test_a_call_that_is_no_step_of_the_optimizer_leaves_the_number_unknown(torch: Any, steps_a_call: int) -> None:
    training = Training(torch, steps=7)
    numbers = StepNumbers()

    numbers.begin(0, training.objects)
    for _ in range(3 * steps_a_call):
        training.step()
    numbers.check(3, training.objects)

    assert numbers.first == AgreedStep(first_step=0, source="calls")
    assert numbers.note is not None
    assert "first_step=" in numbers.note


def test_optimizers_that_disagree_and_scalers_that_skip_steps_say_nothing(torch: Any) -> None:
    few, many = Training(torch, steps=2), Training(torch, steps=5)
    scaler = torch.amp.GradScaler("cpu", enabled=True)

    for found in ([*few.optimizers, *many.optimizers], [*few.optimizers, scaler]):
        numbers = StepNumbers()
        numbers.begin(0, LiveObjects(search=lambda found=found: found))  # type: ignore[misc]
        assert numbers.first.source == "calls"


def test_what_is_given_counts_more_than_the_optimizer(torch: Any) -> None:
    objects = Training(torch, steps=7).objects
    by_user, by_framework, by_both = StepNumbers(lambda: 40), StepNumbers(), StepNumbers(40)
    by_framework.give(30, "framework")
    by_both.give(30, "framework")
    for numbers in (by_user, by_framework, by_both):
        numbers.begin(0, objects)

    assert by_user.first == by_both.first == AgreedStep(first_step=40, source="argument")
    assert by_framework.first == AgreedStep(first_step=30, source="framework")


def test_a_function_that_fails_costs_the_number_alone() -> None:
    numbers = StepNumbers(lambda: 1 // 0)

    numbers.begin(0, LiveObjects(search=list))

    assert numbers.first == AgreedStep(first_step=0, source="calls")
    assert numbers.note == (
        "first_step failed: ZeroDivisionError: integer division or modulo by zero; steps are counted from 0"
    )


def test_an_optimizer_that_is_like_no_other_says_nothing(torch: Any) -> None:
    class Odd(torch.optim.SGD):  # type: ignore[misc]
        @property
        def state(self) -> Any:
            raise RuntimeError

        @state.setter
        def state(self, value: Any) -> None: ...

    training = Training(torch, steps=0)
    odd = Odd(training.model.parameters(), lr=0.1)
    numbers = StepNumbers()

    numbers.begin(0, LiveObjects(search=lambda: [odd]))

    assert numbers.first.source == "calls"


def test_a_framework_passes_what_it_has_counted(runs: Any) -> None:
    loop = RecordedLoop(runs.path, {"skip": 0, "warmup": 0, "steps": 2})
    loop.begin(20)
    for _ in range(3):
        loop.step()
    loop.end()

    assert first_of(runs.traces()) == [(20, "framework", [20, 21])]


@pytest.mark.parametrize("wrong", [-1, 1.5, "7", True])
def test_what_is_no_number_of_a_step_is_refused(wrong: Any) -> None:
    with pytest.raises(UsageError, match="first_step"):
        probe(first_step=wrong)


def test_recorded_steps_have_the_jobs_numbers(runs: Any, torch: Any) -> None:
    training = Training(torch, steps=7)
    recorded = probe(path=runs.path)
    step = recorded(training.step)
    for _ in range(8):
        step()
    recorded.finish()

    assert first_of(runs.traces()) == [(7, "optimizer", [11, 12, 13])]
    assert [file.parent.name for file in runs.files()] == ["step-000000011"] * 2
    names = {event.get("name") for event in runs.traces()[0]["traceEvents"]}
    assert {"ProfilerStep#11", "ProfilerStep#12", "ProfilerStep#13"} <= names


def test_a_job_too_short_for_its_window_has_the_jobs_numbers_too(runs: Any, work: Callable[[], float]) -> None:
    recorded = probe(path=runs.path, skip=1, warmup=0, first_step=100)
    step = recorded(work)
    for _ in range(3):
        step()
    with pytest.warns(UserWarning, match="the loop ended after 3 steps"):
        recorded.finish()

    assert first_of(runs.traces()) == [(100, "argument", [101, 102])]


def test_a_call_that_resumed_wrongly_is_noted(runs: Any, torch: Any) -> None:
    training = Training(torch, steps=7)
    recorded = probe(path=runs.path)
    step = recorded(lambda: [training.step() for _ in range(2)])
    for _ in range(8):
        step()
    recorded.finish()

    (trace,) = runs.traces()
    assert first_of([trace]) == [(0, "calls", [4, 5, 6])]
    assert any("first_step=" in note["text"] for note in trace["tracekit"]["notes"])


def test_a_number_that_is_given_up_as_the_window_opens_is_not_recorded(runs: Any, torch: Any) -> None:
    """GIVEN a call before the warm-up that is one step of the optimizer, and later calls that are two."""
    training = Training(torch, steps=7)
    counts = iter([1, 2, 2, 2, 2, 2])
    recorded = probe(path=runs.path, skip=1)
    step = recorded(lambda: [training.step() for _ in range(next(counts))])
    for _ in range(6):
        step()
    recorded.finish()

    assert first_of(runs.traces()) == [(0, "calls", [2, 3, 4])]
