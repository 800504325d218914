"""Objects of the training program, found without configuration: one pass over what the garbage collector tracks."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from typing import Any

# Everything that an observer looks for is one of these; types of modules that training has not imported are left out.
_ROOTS = (
    ("torch.nn.modules.module", "Module"),
    ("torch.optim.optimizer", "Optimizer"),
    ("torch.amp.grad_scaler", "GradScaler"),
    ("torch.distributed.device_mesh", "DeviceMesh"),
    ("torch.distributed.pipelining.schedules", "_PipelineSchedule"),
    ("torch.distributed.pipelining.stage", "_PipelineStageBase"),
)

__all__ = ["Program", "live_instances"]


def live_instances(*kinds: type) -> dict[type, list[Any]]:
    """All live instances of each of `kinds`, subclasses included, in no order to rely on: collections change it.

    Asks for `type(x)`, never for `x.__class__`: proxies and lazy modules do work when they are asked for that. What
    `gc.freeze()` has hidden is not found; `tracekit.probe(watch=...)` names it.
    """
    found: dict[type, list[Any]] = {kind: [] for kind in kinds}
    # By id, with the type itself to keep it: a metaclass may compare or hash as it likes, or not at all.
    wanted: dict[int, tuple[type, Sequence[type]]] = {}
    for candidate in gc.get_objects():
        kind = type(candidate)
        known = wanted.get(id(kind))
        if known is None:
            known = wanted[id(kind)] = kind, [base for base in kinds if _is_subclass(kind, base)]
        for base in known[1]:
            found[base].append(candidate)
    return found


def _is_subclass(kind: type, base: type) -> bool:
    return any(above is base for above in kind.__mro__)


class Program:
    """What observers may ask for, collected once for all of them, when the first asks.

    Holds its objects: keep it no longer than the call that was given it.
    """

    def __init__(self, watch: Sequence[Any] = ()) -> None:
        self._watch = watch
        self._objects: list[Any] | None = None

    def instances(self, module: str, name: str) -> list[Any]:
        """Live instances of `module.name`, subclasses included, each once, in no order to rely on; none if training has
        not imported `module`. Watched ones are among them, hidden or not.
        """
        kind = getattr(sys.modules.get(module), name, None)
        if kind is None:
            return []
        if self._objects is None:
            self._objects = self._collect()
        return [candidate for candidate in self._objects if _is_subclass(type(candidate), kind)]

    def _collect(self) -> list[Any]:
        roots = [getattr(sys.modules.get(module), name, None) for module, name in _ROOTS]
        found = live_instances(*(root for root in roots if root is not None))
        objects = [candidate for candidates in found.values() for candidate in candidates]
        for watched in self._watch:
            objects += watched.modules() if hasattr(watched, "modules") else [watched]
        return list({id(candidate): candidate for candidate in objects if not _is_half_made(candidate)}.values())


def _is_half_made(candidate: Any) -> bool:
    """A module whose constructor failed before that of `Module`: what held it then may still do."""
    module = getattr(sys.modules.get("torch.nn.modules.module"), "Module", None)
    return module is not None and _is_subclass(type(candidate), module) and "_modules" not in vars(candidate)
