"""`tracekit.probe`: records a few training steps of each rank without changing the training loop.

    @tracekit.probe                             each call is a step, as is each item of a generator, async or not
    def train_step(batch): ...

    with tracekit.probe(path="runs/a") as probe:
        for batch in probe.iterate(loader):     loading time becomes visible
            ...
            probe.step()                        at the end of each step

Each window leaves a trace and a manifest for each rank. No error of the capture reaches the training loop: it becomes
a `CaptureWarning`.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, overload

from tracekit.capture.output.paths import MAX_BYTES, MIN_FREE_BYTES, DiskBudget
from tracekit.capture.probe_object import Probe
from tracekit.capture.schedule import FirstStep, Schedule, StepNumbers, check_first_step

P = ParamSpec("P")
R = TypeVar("R")


@overload
def probe(path: Callable[P, R], /) -> Callable[P, R]: ...


@overload
def probe(
    path: str | os.PathLike[str] = ...,
    *,
    skip: int = ...,
    warmup: int = ...,
    steps: int = ...,
    repeat: int = ...,
    every: int | None = ...,
    watch: Sequence[Any] = ...,
    shapes: bool = ...,
    stack: bool = ...,
    memory: bool = ...,
    flops: bool = ...,
    max_bytes: int = ...,
    min_free_bytes: int = ...,
    first_step: FirstStep | None = ...,
    quiet: bool = ...,
) -> Probe: ...


def probe(
    path: Any = "runs",
    *,
    skip: int = Schedule.skip,
    warmup: int = Schedule.warmup,
    steps: int = Schedule.steps,
    repeat: int = Schedule.repeat,
    every: int | None = Schedule.every,
    watch: Sequence[Any] = (),
    shapes: bool = True,
    stack: bool = False,
    memory: bool = False,
    flops: bool = False,
    max_bytes: int = MAX_BYTES,
    min_free_bytes: int = MIN_FREE_BYTES,
    first_step: FirstStep | None = None,
    quiet: bool = False,
) -> Any:
    """Return a decorator and context manager that records `steps` training steps under `path`.

    A window skips `skip` calls, starts the profiler in the next `warmup` calls and records the `steps` calls after
    that. There are `repeat` windows, one every `every` calls (default: `warmup + steps`, so they follow each other).
    A window ends with the call after it, with `finish()`, or with the program: then what there is is written, marked
    partial if it is less. The call after it waits until torch has stopped its profiler and written the trace. That
    takes longer the more events there are.

    Args:
        path: folder of the runs; `TRACEKIT_PATH` overrides it.
        skip, warmup, steps: numbers of calls; `TRACEKIT_SKIP`, `TRACEKIT_WARMUP` and `TRACEKIT_STEPS` override them.
        repeat: number of windows.
        every: calls from the start of one window to the start of the next.
        watch: modules that the garbage collector cannot find (after `gc.freeze()`).
        shapes: torch.profiler's `record_shapes`.
        stack: torch.profiler's `with_stack`.
        memory: torch.profiler's `profile_memory`.
        flops: torch.profiler's `with_flops`.
        max_bytes: the most that the files of this process may take, over all its probes (`TRACEKIT_MAX_BYTES`).
        min_free_bytes: what must stay free on their disk (`TRACEKIT_MIN_FREE_BYTES`).
        first_step: the number of the job's step at the first call, or a function that returns it then: a job that has
            resumed from a checkpoint does not begin with 0. By default the optimizers tell, where that is sure.
        quiet: whether rank 0 says nothing at the end. By default it says which steps were recorded, and what to type.

    `TRACEKIT=0` in the environment switches everything off. Raises UsageError if the options contradict each other.

    A window that does not fit on the disk is dropped, and the recording ends with a warning. While a window is being
    written, torch's uncompressed export of it lies beside the files.
    """
    if callable(path) or isinstance(path, classmethod):
        return probe()(path)
    schedule = Schedule(skip=skip, warmup=warmup, steps=steps, repeat=repeat, every=every)
    options = {"record_shapes": shapes, "with_stack": stack, "profile_memory": memory, "with_flops": flops}
    budget = DiskBudget(max_bytes=max_bytes, min_free_bytes=min_free_bytes)
    check_first_step(first_step)
    return Probe(Path(path), schedule, options, watch, budget, StepNumbers(first_step), quiet)


def check_options(path: str | os.PathLike[str] = "runs", **options: Any) -> None:
    """Raise what `probe(path, **options)` would raise, without making a probe."""
    arguments = inspect.signature(probe).bind(path, **options).arguments
    for kind in (Schedule, DiskBudget):
        names = {field.name for field in dataclasses.fields(kind)}
        kind(**{name: value for name, value in arguments.items() if name in names})
    check_first_step(arguments.get("first_step"))
