"""Runs a probe's script with plain torch.profiler in place of the probe: plain_profiler.py SCRIPT [OPTIONS OF IT].

Ranks write what `tensorboard_trace_handler` writes, for the same steps that the probe would record.
"""

from __future__ import annotations

import functools
import os
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch.profiler import ProfilerActivity, profile, schedule, tensorboard_trace_handler

import tracekit

_SKIPPED, _WARM_UP = 3, 1  # as the probe's defaults


def probe(path: str, steps: int = 3, **_: object) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that profiles a step's function, as `tracekit.probe` would record it."""
    steps = int(os.environ.get("TRACEKIT_STEPS", steps))

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        profiler = profile(
            activities=[ProfilerActivity.CPU],
            schedule=schedule(wait=_SKIPPED, warmup=_WARM_UP, active=steps, repeat=1),
            on_trace_ready=tensorboard_trace_handler(path),
            record_shapes=True,
        )
        profiler.start()

        @functools.wraps(function)
        def step(*arguments: Any, **options: Any) -> Any:
            result = function(*arguments, **options)
            profiler.step()
            return result

        return step

    return decorate


if __name__ == "__main__":
    del sys.argv[0]
    sys.path.insert(0, str(Path(sys.argv[0]).parent))
    tracekit.probe = probe  # type: ignore[assignment]  # one of its two forms
    runpy.run_path(sys.argv[0], run_name="__main__")
