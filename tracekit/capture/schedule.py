"""Which calls a probe records, by its options and the environment, and which steps of the job these are.

A call is one training step; calls are numbered from 0. Window w of a schedule covers the calls

    skip + w * every                                               (nothing, then)
    |-- warmup: the profiler runs, nothing is kept --|-- steps: recorded --|

`every` defaults to `warmup + steps`: windows follow each other without a gap.

Ranks take differently long to prepare a window, and those that are done first wait for the others in the next call. If
that call were recorded, the wait would be in the trace. So a window is prepared one call earlier if there is one.

The first call is not the job's first step if the job has resumed from a checkpoint. The user can say which step it is
(`first_step=`), and so can the framework that runs the loop. Otherwise `StepNumbers` asks the optimizers, whose state
counts their own steps. That count is taken only if it is certain: all optimizers agree, no gradient scaler skips steps,
and each call since has been one step of the optimizers.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tracekit.capture.hooks.live_objects import LiveObjects
from tracekit.capture.job.run_agreement import AgreedStep
from tracekit.errors import UsageError

NEVER = 1 << 62  # as the number of a call
ENVIRONMENT_OPTIONS = {"skip": "TRACEKIT_SKIP", "warmup": "TRACEKIT_WARMUP", "steps": "TRACEKIT_STEPS"}

FirstStep = int | Callable[[], int]


@dataclass(frozen=True, kw_only=True)
class WindowPlan:
    """The calls of one window.

    Attributes:
        index: the number of the window.
        prepare: the call at which the profiler is set up and the program's objects are found; `first` or before.
        first: the first recorded call.
        stop: the call after the last recorded one.
        skip: the schedule's option, for the metadata.
        warmup: the schedule's option, for the metadata.
    """

    index: int
    prepare: int
    first: int
    stop: int
    skip: int = 0
    warmup: int = 0

    @property
    def steps(self) -> int:
        return self.stop - self.first

    def shifted(self, calls: int) -> WindowPlan:
        """Return the same window, `calls` calls later."""
        return replace(self, prepare=self.prepare + calls, first=self.first + calls, stop=self.stop + calls)


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The options of `tracekit.probe` about when to record, with their defaults.

    Raises UsageError if they contradict each other.
    """

    skip: int = 3
    warmup: int = 1
    steps: int = 3
    repeat: int = 1
    every: int | None = None

    def __post_init__(self) -> None:
        for option, least in (("skip", 0), ("warmup", 0), ("steps", 1), ("repeat", 1)):
            value = getattr(self, option)
            if not isinstance(value, int) or value < least:
                raise UsageError(f"{option}={value!r} is not a number of steps", hint=f"pass an integer >= {least}")
        if self.every is not None and self.every < self.warmup + self.steps:
            raise UsageError(
                f"every={self.every} is shorter than a window of warmup={self.warmup} + steps={self.steps} calls",
                hint=f"pass every={self.warmup + self.steps} or more",
            )

    @property
    def calls_needed(self) -> int:
        """The calls that a job must make to fill the first window."""
        return self.skip + self.warmup + self.steps

    def window(self, index: int) -> WindowPlan | None:
        """Return window `index`, counted from 0, or None after the last."""
        if index >= self.repeat:
            return None
        every = self.every or self.warmup + self.steps
        begin = self.skip + index * every
        first = begin + self.warmup
        # Not during the recording before: that would be two profilers at once.
        recorded_until = first - every + self.steps if index else 0
        prepare = max(min(begin, first - 1), recorded_until)
        return WindowPlan(
            index=index, prepare=prepare, first=first, stop=first + self.steps, skip=self.skip, warmup=self.warmup
        )


def schedule_from_environment(
    schedule: Schedule, environment: Mapping[str, str], warn: Callable[[str], None]
) -> Schedule:
    """Return the schedule with `TRACEKIT_SKIP`, `TRACEKIT_WARMUP` and `TRACEKIT_STEPS` applied.

    An invalid value is reported through `warn` and ignored: a typing error in a shell must not stop a job.
    """
    options: dict[str, int | None] = {
        "skip": schedule.skip,
        "warmup": schedule.warmup,
        "steps": schedule.steps,
        "repeat": schedule.repeat,
        "every": schedule.every,
    }
    for option, variable in ENVIRONMENT_OPTIONS.items():
        if text := environment.get(variable):
            try:
                options[option] = int(text)
                schedule = Schedule(**options)  # type: ignore[arg-type]
            except (ValueError, UsageError):
                options[option] = getattr(schedule, option)
                warn(f"{variable}={text!r} is ignored: it does not fit the other options")
    return schedule


def path_from_environment(path: str | Path, environment: Mapping[str, str]) -> Path:
    return Path(environment.get("TRACEKIT_PATH") or path)


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
