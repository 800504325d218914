"""Objects of the training program, found without configuration: one pass over what the garbage collector tracks."""

from __future__ import annotations

import gc
import itertools
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any

# Everything that the capture looks for is one of these; types of modules that training has not imported are left out.
_ROOTS = (
    ("torch.nn.modules.module", "Module"),
    ("torch.optim.optimizer", "Optimizer"),
    ("torch.amp.grad_scaler", "GradScaler"),
    ("torch.distributed.device_mesh", "DeviceMesh"),
    ("torch.distributed.pipelining.schedules", "_PipelineSchedule"),
    ("torch.distributed.pipelining.stage", "_PipelineStageBase"),
    ("torch.profiler.profiler", "profile"),
)

__all__ = ["LiveObjects", "live_instances"]


def live_instances(*kinds: type) -> dict[type, list[Any]]:
    """Return the live instances of each of `kinds`, subclasses included, in no order to rely on.

    Asks for `type(x)`, never for `x.__class__`: proxies and lazy modules do work when they are asked for that. What
    `gc.freeze()` has hidden is not found; `tracekit.probe(watch=...)` names it.
    """
    subclasses = {kind: _with_subclasses(kind) for kind in kinds}
    wanted = set(itertools.chain.from_iterable(subclasses.values()))
    objects = gc.get_objects()
    # No Python code runs per object: there may be millions.
    is_wanted = map(wanted.__contains__, map(id, map(type, objects)))
    found = list(itertools.compress(objects, is_wanted))
    return {kind: [each for each in found if id(type(each)) in types] for kind, types in subclasses.items()}


def _with_subclasses(kind: type) -> dict[int, type]:
    """Return `kind` and all classes below it, by id: a metaclass may compare or hash as it likes, or not at all."""
    found: dict[int, type] = {}
    pending = [kind]
    while pending:
        candidate = pending.pop()
        if id(candidate) not in found:
            found[id(candidate)] = candidate
            pending += type.__subclasses__(candidate)
    return found


def _search() -> list[Any]:
    roots = [getattr(sys.modules.get(module), name, None) for module, name in _ROOTS]
    found = live_instances(*(root for root in roots if root is not None))
    return list(itertools.chain.from_iterable(found.values()))


class LiveObjects:
    """The objects of the training program, collected once for all that ask, when the first asks.

    Holds its objects: keep it no longer than the call that was given it.
    """

    def __init__(self, watch: Sequence[Any] = (), search: Callable[[], list[Any]] = _search) -> None:
        self._watch = watch
        self._search = search
        self._found: list[Any] | None = None
        self._objects: list[Any] = []

    def instances(self, module: str, name: str) -> list[Any]:
        """Return the live instances of `module.name`, subclasses included, each once, in no order to rely on.

        None if training has not imported `module`. Watched objects are among them, hidden from the garbage collector
        or not.
        """
        kind = getattr(sys.modules.get(module), name, None)
        if kind is None:
            return []
        if self._found is None:
            self._found = self._search()
            self._objects = self._with_watched(self._found)
        types = _with_subclasses(kind)
        return [candidate for candidate in self._objects if id(type(candidate)) in types]

    def later(self) -> LiveObjects:
        """Return the same program for a later call: what is still alive then, without another search.

        Until it is asked it holds no object.
        """
        if self._found is None:
            return LiveObjects(self._watch)
        references = [weakref.ref(found) for found in self._found]
        return LiveObjects(self._watch, lambda: [alive for ref in references if (alive := ref()) is not None])

    def _with_watched(self, found: list[Any]) -> list[Any]:
        objects = list(found)
        for watched in self._watch:
            objects += watched.modules() if hasattr(watched, "modules") else [watched]
        module = getattr(sys.modules.get("torch.nn.modules.module"), "Module", None)
        modules = {} if module is None else _with_subclasses(module)
        # A module whose constructor failed before that of `Module`: what held it then may still do.
        whole = (each for each in objects if id(type(each)) not in modules or "_modules" in vars(each))
        return list({id(each): each for each in whole}.values())
