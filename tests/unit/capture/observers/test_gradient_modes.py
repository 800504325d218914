"""An evaluation is recorded: forwards of a trained module, and the blocks without gradients around them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.components import require_module
from tracekit.capture.hooks.live_objects import LiveObjects
from tracekit.capture.observers import phases
from tracekit.model.spans import EVALUATION_SPAN, NO_GRAD_SPAN

torch = require_module("torch")


@pytest.fixture(autouse=True)
def several_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phases, "several_processes", lambda: True)


def record(work: Callable[[Any], None]) -> tuple[int, int]:
    """Do `work` with a trained module; return the numbers of spans of evaluations and of blocks."""
    module = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, foreach=False)
    observers = (phases.ForwardObserver(), phases.GradientModeObserver())
    work(module)
    objects = LiveObjects()
    for observer in observers:
        observer.attach(objects)
    with torch.profiler.profile() as profiler:
        work(module)
    for observer in reversed(observers):
        observer.detach(objects)
    del optimizer
    counts = {event.key: event.count for event in profiler.key_averages()}
    return counts.get(EVALUATION_SPAN, 0), counts.get(NO_GRAD_SPAN, 0)


def forward(module: Any) -> None:
    module(torch.ones(1, 2))


@pytest.mark.parametrize("block", ["no_grad", "inference_mode"])
def test_an_evaluation_has_a_span_for_each_forward_and_one_for_its_block(block: str) -> None:
    def work(module: Any) -> None:
        module.eval()
        with getattr(torch, block)(), torch.no_grad():
            forward(module)
            forward(module)
        module.train()

    assert record(work) == (2, 1)


def test_a_module_that_is_evaluated_past_its_wrapper_is_found() -> None:
    class Wrapper(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, module: Any) -> None:
            super().__init__()
            self.module = module

    wrappers: list[Any] = []

    @torch.no_grad()  # type: ignore[untyped-decorator, unused-ignore]
    def evaluate(module: Any) -> None:
        if not wrappers:
            wrappers.append(Wrapper(module))
        module.eval()
        forward(module)

    assert record(evaluate) == (1, 1)


def test_forwards_that_train_and_modules_that_are_not_trained_are_no_evaluation() -> None:
    """GIVEN a forward with gradients in evaluation mode, one without in training mode, and one of a teacher."""
    teacher = torch.nn.Linear(2, 2).eval()

    def work(module: Any) -> None:
        forward(module.eval())
        module.train()
        with torch.no_grad():
            forward(module)
            forward(teacher)

    assert record(work) == (0, 1)
