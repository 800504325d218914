"""Computes from options and environment which calls a probe records. Pure arithmetic, no torch.

A call is one training step; calls are numbered from 0. Window w of a schedule covers the calls

    skip + w * every                                               (nothing, then)
    |-- warmup: the profiler runs, nothing is kept --|-- steps: recorded --|

`every` defaults to `warmup + steps`: windows follow each other without a gap.

Ranks take differently long to prepare a window. Whoever is done first waits for the others in the next call. So that
this is no recorded one, it happens a call earlier wherever there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tracekit.errors import UsageError

NEVER = 1 << 62  # as the number of a call
ENVIRONMENT_OPTIONS = {"skip": "TRACEKIT_SKIP", "warmup": "TRACEKIT_WARMUP", "steps": "TRACEKIT_STEPS"}

__all__ = ["NEVER", "Schedule", "WindowPlan", "path_from_environment", "schedule_from_environment"]


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
    """The options of `tracekit.probe` about when to record. Raises UsageError if they contradict each other."""

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
