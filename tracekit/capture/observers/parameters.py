"""Finds the parameters of the program: those of all live modules.

A program may keep its weights in no module. Where no module has a parameter that is trained, those of the optimizers
count, too. Without optimizers these are all other leaves of the autograd graph that were there when the window opened.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Self

from tracekit.capture.hooks.live_objects import LiveObjects


@dataclass(frozen=True)
class LiveParameters:
    """The parameters of the program, each once. Keeps them alive."""

    parameters: list[Any]

    @classmethod
    def of(cls, objects: LiveObjects, before: LiveParameters | None = None) -> Self:
        """Return the parameters of live modules. Where none of them is trained, add those that no module has.

        `before`: the parameters at an earlier moment. A leaf of the autograd graph that was none of them then may be
        an input, and does not count.
        """
        parameters = [
            parameter
            for module in objects.instances("torch.nn.modules.module", "Module")
            for parameter in vars(module).get("_parameters", {}).values()
            if parameter is not None
        ]
        if not any(parameter.requires_grad for parameter in parameters):
            parameters += _parameters_outside_modules(objects, before)
        return cls(list({id(parameter): parameter for parameter in parameters}.values()))

    def dtypes(self) -> list[str]:
        """Return the data types of the parameters, the one with the most bytes first."""
        sizes: Counter[str] = Counter()
        for tensor in plain_tensors(self.parameters):
            sizes[str(tensor.dtype).removeprefix("torch.")] += tensor.nbytes
        return [dtype for dtype, _ in sizes.most_common()]

    def shards(self) -> list[Any]:
        """Return this rank's shards of them under ZeRO 3, where the parameters are empty between uses."""
        return [shard for p in self.parameters if (shard := getattr(p, "ds_tensor", None)) is not None]

    def gradients(self) -> list[Any]:
        """Return the gradients that the parameters hold now."""
        return [gradient for p in self.parameters if p.is_leaf and (gradient := p.grad) is not None]


def parameters_of_optimizers(objects: LiveObjects) -> list[Any]:
    """Return the parameters of all live optimizers; one that several have, several times."""
    optimizers = objects.instances("torch.optim.optimizer", "Optimizer")
    return [each for optimizer in optimizers for group in optimizer.param_groups for each in group["params"]]


def plain_tensors(tensors: Iterable[Any]) -> Iterator[Any]:
    """Yield the tensors with memory in this process that `tensors` are made of."""
    torch, without_memory = sys.modules["torch"], _kinds_without_memory()
    strided, plain = torch.strided, {torch.Tensor, torch.nn.Parameter}
    for tensor in tensors:
        if type(tensor) in plain and tensor.layout is strided and not tensor.is_meta:
            yield tensor  # nearly all: a backward pass of a recorded step waits for this
            continue
        if not isinstance(tensor, torch.Tensor) or isinstance(tensor, without_memory):
            continue  # flattening may give other objects, such as the mesh of a DTensor
        if hasattr(type(tensor), "__tensor_flatten__"):
            names, _ = tensor.__tensor_flatten__()
            yield from plain_tensors(getattr(tensor, name) for name in names)
        elif not tensor.is_meta and tensor.layout == torch.strided:
            yield tensor
        elif tensor.is_sparse:
            yield from (tensor._indices(), tensor._values())


def _kinds_without_memory() -> tuple[type, ...]:
    """Return the types of uninitialised parameters of lazy modules, and of fake tensors of the compiler."""
    kinds = (
        getattr(sys.modules.get("torch.nn.parameter"), "UninitializedTensorMixin", None),
        getattr(sys.modules.get("torch._subclasses.fake_tensor"), "FakeTensor", None),
    )
    return tuple(kind for kind in kinds if kind is not None)


def _parameters_outside_modules(objects: LiveObjects, before: LiveParameters | None) -> list[Any]:
    """Return the parameters of optimizers; without any, the leaves of the autograd graph that get gradients.

    If some leaves are declared as `nn.Parameter`, only those are parameters.
    """
    if of_optimizers := parameters_of_optimizers(objects):
        return of_optimizers
    leaves = objects.instances("torch", "Tensor")
    if before is not None:
        known = set(map(id, before.parameters))
        leaves = [leaf for leaf in leaves if id(leaf) in known]
    declared = [leaf for leaf in leaves if isinstance(leaf, sys.modules["torch"].nn.Parameter)]
    return declared or leaves
