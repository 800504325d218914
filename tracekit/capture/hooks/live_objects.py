"""Finds objects of the training program by a search of what the garbage collector tracks."""

from __future__ import annotations

import contextlib
import gc
import itertools
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any

# The capture looks for instances of these. A type whose module training has not imported is left out.
_ROOTS = (
    ("torch.nn.modules.module", "Module"),
    ("torch.optim.optimizer", "Optimizer"),
    ("torch.amp.grad_scaler", "GradScaler"),
    ("torch.distributed.device_mesh", "DeviceMesh"),
    ("torch.distributed.pipelining.schedules", "_PipelineSchedule"),
    ("torch.distributed.pipelining.stage", "_PipelineStageBase"),
    ("torch.profiler.profiler", "profile"),
    ("torch._dynamo.eval_frame", "OptimizeContext"),
)

# Of these types alone, without subclasses: those are parts of wrappers, and their attributes may run code.
_TENSORS = (("torch", "Tensor"), ("torch.nn.parameter", "Parameter"))


def _of_types(types: set[int]) -> list[Any]:
    """Return the live objects whose type has one of these ids.

    It reads `type(x)`, never `x.__class__`, which makes proxies and lazy modules do work. Objects hidden by
    `gc.freeze()` are not found; `tracekit.probe(watch=...)` names them.
    """
    objects = gc.get_objects()
    # No Python code runs per object: there may be millions.
    return list(itertools.compress(objects, map(types.__contains__, map(id, map(type, objects)))))


def _with_subclasses(kind: type) -> dict[int, type]:
    """Return `kind` and all its subclasses, by id: a metaclass may redefine comparison and hash."""
    classes: dict[int, type] = {}
    pending = [kind]
    while pending:
        candidate = pending.pop()
        if id(candidate) not in classes:
            classes[id(candidate)] = candidate
            pending += type.__subclasses__(candidate)
    return classes


def _search() -> list[Any]:
    roots, tensors = _imported(_ROOTS), _imported(_TENSORS)
    tensor_types = set(map(id, tensors))
    matches = _of_types(tensor_types.union(*map(_with_subclasses, roots)))
    leaves = _leaves([each for each in matches if id(type(each)) in tensor_types])
    return [each for each in matches if id(type(each)) not in tensor_types] + leaves


def _imported(names: Sequence[tuple[str, str]]) -> list[type]:
    """Return the types with these names, by module and name, that training has imported."""
    types = (getattr(sys.modules.get(module), name, None) for module, name in names)
    return [kind for kind in types if kind is not None]


def _leaves(tensors: list[Any]) -> list[Any]:
    """Return the tensors that get gradients. No mode of the program, such as one that logs calls, sees this."""
    torch = sys.modules.get("torch")
    without_modes = getattr(getattr(torch, "_C", None), "DisableTorchFunction", contextlib.nullcontext)
    leaves = []
    with without_modes():
        for tensor in tensors:
            with contextlib.suppress(Exception):  # a wrapper of functorch whose transform has ended
                if tensor.requires_grad and tensor.is_leaf:
                    leaves.append(tensor)
    return leaves


def _alive(references: Sequence[weakref.ref[Any]]) -> list[Any]:
    """Return the objects that are alive.

    Python's object of a tensor may belong to a graph. Older versions then free the tensor with the graph, whoever
    holds it, unless torch is told that a weak reference gave it out.
    """
    objects = [alive for reference in references if (alive := reference()) is not None]
    tensor_types = set(map(id, _imported(_TENSORS)))
    for each in objects:
        if id(type(each)) in tensor_types and hasattr(each, "_fix_weakref"):
            each._fix_weakref()
    return objects


class LiveObjects:
    """Objects of the training program: one search, at the first question, serves all questions.

    Of tensors it has the leaves of the autograd graph: what gets gradients, whether or not a module has it. It keeps
    its objects alive, so nobody holds it longer than the call to which it was passed.
    """

    def __init__(self, watch: Sequence[Any] = (), search: Callable[[], list[Any]] = _search) -> None:
        self._watch = watch
        self._search = search
        self._matches: list[Any] | None = None
        self._objects: list[Any] = []
        self._instances: dict[int, list[Any]] = {}  # by the id of a type: its subclasses may be thousands

    def instances(self, module: str, name: str) -> list[Any]:
        """Return the live instances of `module.name`, subclasses included, each once, in no order to rely on.

        The list is empty if training has not imported `module`. Watched objects are included even if the garbage
        collector does not see them.
        """
        kind = getattr(sys.modules.get(module), name, None)
        if kind is None:
            return []
        if self._matches is None:
            self._matches = self._search()
            self._objects = self._with_watched(self._matches)
        if id(kind) not in self._instances:
            types = _with_subclasses(kind)
            self._instances[id(kind)] = [each for each in self._objects if id(type(each)) in types]
        return list(self._instances[id(kind)])

    def later(self) -> LiveObjects:
        """Return the same objects for a later call, without another search: those that are alive then.

        Until the first question the result keeps none of them alive.
        """
        if self._matches is None:
            return LiveObjects(self._watch)
        references = [weakref.ref(each) for each in self._matches]
        return LiveObjects(self._watch, lambda: _alive(references))

    def _with_watched(self, matches: list[Any]) -> list[Any]:
        objects = list(matches)
        for watched in self._watch:
            objects += watched.modules() if hasattr(watched, "modules") else [watched]
        module = getattr(sys.modules.get("torch.nn.modules.module"), "Module", None)
        modules = {} if module is None else _with_subclasses(module)
        # Without a module whose constructor failed before that of `Module`: something may still hold it.
        whole = (each for each in objects if id(type(each)) not in modules or "_modules" in vars(each))
        return list({id(each): each for each in whole}.values())
