"""Counts the steps of this process's optimizers, from the first recorded call that it serves on.

A parameter server's parameters have a version: how many steps their optimizer has taken. What a call read and what it
applied is told by the versions before and after it. No function is known by its name.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

from tracekit.capture.hooks.patching import fail_safe
from tracekit.model.metadata import RpcOptimizer, RpcUpdate

_MAX_OPTIMIZERS = 16  # of a process; where there are more, no version is known

_lock = threading.Lock()
_numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
_versions: list[int] = []
_optimizers: list[RpcOptimizer] = []
_is_watching = False

__all__ = ["optimizers", "steps_taken", "versions", "watch_optimizers"]


def watch_optimizers(note: Callable[[RpcUpdate], None]) -> None:
    """Count each step from now on, and pass it to `note` on the thread that took it. Further calls do nothing."""
    global _is_watching
    module = sys.modules.get("torch.optim.optimizer")
    if _is_watching or module is None:
        return
    with _lock:
        if _is_watching:
            return
        _is_watching = True

    def count(optimizer: Any, *_: Any) -> None:
        with _lock:
            number = _number(optimizer)
            if number is None:
                return
            _versions[number] += 1
            update = RpcUpdate(optimizer=number, version=_versions[number])
        note(update)

    module.register_optimizer_step_post_hook(fail_safe(count))


def versions() -> list[int] | None:
    """Return how many steps each optimizer has taken, by number; None where they are not counted."""
    return _versions.copy() if _is_watching and len(_versions) <= _MAX_OPTIMIZERS else None


def steps_taken() -> int:
    """Return how many steps all optimizers have taken together."""
    return sum(_versions)


def optimizers() -> list[RpcOptimizer]:
    return _optimizers.copy()


def _number(optimizer: Any) -> int | None:
    """Return the number of an optimizer, from its first step on; None beyond the limit."""
    number = _numbers.get(optimizer)
    if number is None and len(_versions) <= _MAX_OPTIMIZERS:
        number = _numbers[optimizer] = len(_versions)
        _versions.append(0)
        shapes = [list(parameter.shape) for group in optimizer.param_groups for parameter in group["params"]]
        _optimizers.append(RpcOptimizer(number=number, shapes=shapes))
    return number
