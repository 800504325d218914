"""Finds out which of the job's steps the first call is: not the first one, if the job has resumed from a checkpoint.

The user can say it (`first_step=`), and so can the framework that runs the loop. Otherwise the optimizers are asked,
whose state counts their own steps. That count is taken only where it is sure: all optimizers agree, no gradient scaler
skips steps, and each call since has been one step of the optimizers.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any

from tracekit.capture.hooks.live_objects import LiveObjects
from tracekit.capture.job.run_agreement import AgreedStep
from tracekit.errors import UsageError

FirstStep = int | Callable[[], int]

__all__ = ["FirstStep", "StepNumbers", "check_first_step"]


def check_first_step(first_step: FirstStep | None) -> None:
    """Raise UsageError unless it is a number of a step, a function that returns one, or None."""
    is_number = isinstance(first_step, int) and not isinstance(first_step, bool) and first_step >= 0
    if first_step is not None and not is_number and not callable(first_step):
        raise UsageError(f"first_step={first_step!r} is not the number of a step", hint="pass an integer >= 0")


class StepNumbers:
    """The number of the job's step at the first call of a probe.

    Attributes:
        first: the number, as far as it is known.
        note: why the number is not known although the job has resumed; None if there is nothing to say.
    """

    def __init__(self, first_step: FirstStep | None = None) -> None:
        """`first_step`: what the user says, or a function to ask at the first call."""
        self.first = AgreedStep(first_step=0, source="calls")
        self.note: str | None = None
        self._given = first_step
        self._source = "argument"
        self._begun_call: int | None = None

    def give(self, first_step: int, source: str) -> None:
        """Take what somebody else knows, unless the user has said it."""
        if self._given is None:
            self._given, self._source = first_step, source

    def begin(self, call: int, objects: LiveObjects) -> None:
        """Find the number at the first call, before its step has run."""
        self._begun_call = call
        if self._given is not None:
            try:
                given = self._given() if callable(self._given) else self._given
                self.first = AgreedStep(first_step=max(int(given), 0) - call, source=self._source)
            except Exception as error:
                self.note = f"first_step failed: {type(error).__name__}: {error}; steps are counted from 0"
        elif (steps := _optimizer_steps(objects)) is not None and steps > 0:
            self.first = AgreedStep(first_step=steps - call, source="optimizer")

    def check(self, call: int, objects: LiveObjects) -> None:
        """Give up a number that the optimizers said, if calls since then were no steps of theirs."""
        if self.first.source != "optimizer" or call == self._begun_call:
            return
        steps = _optimizer_steps(objects)
        if steps is None or steps != self.first.first_step + call:
            self.note = (
                f"the job has resumed after {self.first.first_step} steps of the optimizer, but a call is not one such "
                "step: steps are counted from 0; tell tracekit.probe(first_step=...)"
            )
            self.first = AgreedStep(first_step=0, source="calls")


def _optimizer_steps(objects: LiveObjects) -> int | None:
    """Return how many steps the live optimizers have made; None if that is not sure.

    Of each optimizer one parameter is asked: on a device its count has to be copied from there.
    """
    with contextlib.suppress(Exception):  # optimizers are the program's, and may be anything
        scalers = objects.instances("torch.amp.grad_scaler", "GradScaler")
        optimizers = objects.instances("torch.optim.optimizer", "Optimizer")
        counts = {count for each in optimizers if (count := _steps_of(each)) is not None}
        if len(counts) == 1 and not any(vars(scaler).get("_enabled") for scaler in scalers):
            return counts.pop()
    return None


def _steps_of(optimizer: Any) -> int | None:
    tensor = sys.modules["torch"].Tensor
    for state in optimizer.state.values():
        step: Any = state.get("step") if isinstance(state, dict) else None
        # To read a subclass of tensors, such as a DTensor, may need the other ranks.
        if type(step) in {int, float, tensor}:
            return int(step)
    return None
