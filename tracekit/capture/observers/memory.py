"""Measures the memory of this rank: parameters, gradients, optimizer state, and the peak.

It reads addresses and sizes of existing tensors. It allocates nothing, waits for no device and resets no statistics.

* parameters: those of `parameters.py`, as the window closes.
* gradients: of these parameters, as the first backward pass of the window returns or as the window closes, whichever
  is more, because `zero_grad()` may drop them before a step ends.
* optimizer: the state of all live optimizers, and their parameters that count as none above (32-bit master copies).
* peak: with an accelerator the most that the caching allocator held since the process began or the user reset its
  statistics. Without one, the most physical memory that the whole process had, libraries included.

What is not found is unknown, not 0: weights that get no gradients and are in no module, or an update written by hand,
with whatever state it keeps.

A byte counts once, however many tensors share it (tied weights, views into the flat parameter of FSDP1). Of a DTensor
the local shard counts; of a tensor made of others (quantised weights) those count; a meta tensor counts nothing.
DeepSpeed's ZeRO keeps its shards in other tensors, which count as what they are shards of.
"""

from __future__ import annotations

import resource
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tracekit.capture.hooks.live_objects import LiveObjects
from tracekit.capture.hooks.patching import PatchSet, patch_of
from tracekit.capture.hooks.span import leaf_inputs, runs_backward
from tracekit.capture.job.process import accelerator_module
from tracekit.capture.observers import MetadataDraft
from tracekit.capture.observers.deepspeed import find_engines
from tracekit.capture.observers.parameters import LiveParameters, plain_tensors
from tracekit.model.metadata import MemoryUse


class MemoryObserver:
    """Holds the parameters from `attach` to `detach`, to measure their gradients after a backward pass."""

    def __init__(self) -> None:
        self._parameters = LiveParameters([])
        self._zero: list[Any] = []  # optimizers of DeepSpeed
        self._patches = PatchSet()
        self._gradient_bytes: int | None = None
        self._use: MemoryUse | None = None

    def attach(self, objects: LiveObjects) -> None:
        self._parameters = LiveParameters.of(objects)
        self._zero = [engine.optimizer for engine in find_engines(objects)]
        if self._parameters.parameters:
            self._patches.apply(patch_of("torch.autograd", None, "backward", self._after_backward))
            self._patches.apply(patch_of("torch.autograd", None, "grad", self._after_grad))

    def detach(self, objects: LiveObjects) -> None:
        self._patches.remove()
        self._parameters = LiveParameters.of(objects, self._parameters)
        self._zero = [engine.optimizer for engine in find_engines(objects)]
        parameters = [*self._parameters.parameters, *self._parameters.shards()]
        known = bool(parameters)
        parameter_memory = _DistinctBytes(parameters)
        optimizers = objects.instances("torch.optim.optimizer", "Optimizer")
        states = [tensor for each in optimizers for tensor in _optimizer_tensors(each)]
        states += _tensors_within(getattr(each, "fp32_partitioned_groups_flat", None) for each in self._zero)
        total_memory = _DistinctBytes([*parameters, *states])
        self._use = MemoryUse(
            parameter_bytes=parameter_memory.total if known else None,
            gradient_bytes=max(self._gradient_bytes or 0, self._gradients().total) if known else None,
            optimizer_bytes=total_memory.total - parameter_memory.total if optimizers else None,
            peak_bytes=_peak_bytes(),
            device_bytes=_device_bytes(),
        )
        self._parameters, self._zero = LiveParameters([]), []

    def contribute(self, draft: MetadataDraft) -> None:
        draft.memory = self._use

    def _after_backward(self, backward: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        backward(*args, **kwargs)
        if self._gradient_bytes is None and not runs_backward():
            self._gradient_bytes = self._gradients().total

    def _after_grad(self, grad: Callable[..., Any], outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Measure the gradients that a call returns: the parameters hold none."""
        gradients = grad(outputs, inputs, *args, **kwargs)
        if self._gradient_bytes is None:
            parameters = set(map(id, self._parameters.parameters))
            pairs = zip(leaf_inputs(inputs), gradients, strict=False)
            of_parameters = [gradient for parameter, gradient in pairs if id(parameter) in parameters]
            self._gradient_bytes = _DistinctBytes(of_parameters).total or None
        return gradients

    def _gradients(self) -> _DistinctBytes:
        names = ("averaged_gradients", "grad_partitions_flat_buffer")  # of ZeRO 1 and 2, of ZeRO 3
        partitions = _tensors_within(getattr(optimizer, name, None) for optimizer in self._zero for name in names)
        return _DistinctBytes([*self._parameters.gradients(), *partitions])


class _DistinctBytes:
    """The memory that tensors take together; shared bytes count once."""

    def __init__(self, tensors: Iterable[Any]) -> None:
        self.total = 0
        ranges: dict[Any, list[tuple[int, int]]] = defaultdict(list)
        for tensor in plain_tensors(tensors):
            if size_bytes := tensor.nbytes:
                begin = tensor.data_ptr()
                ranges[tensor.device].append((begin, begin + size_bytes))
        for on_device in ranges.values():
            reach = 0
            for begin, end in sorted(on_device):
                self.total += max(end - max(begin, reach), 0)
                reach = max(reach, end)


def _optimizer_tensors(optimizer: Any) -> Iterator[Any]:
    """Yield the state of an optimizer and its parameters; those of modules are excluded later, by their address."""
    yield from _tensors_within(optimizer.state.values())
    for group in optimizer.param_groups:
        yield from _tensors_within(group["params"])


def _tensors_within(values: Iterable[Any]) -> Iterator[Any]:
    tensor = sys.modules["torch"].Tensor
    for value in values:
        if isinstance(value, tensor):
            yield value
        elif isinstance(value, dict):
            yield from _tensors_within(value.values())
        elif isinstance(value, list | tuple):
            yield from _tensors_within(value)


def _peak_bytes() -> int:
    allocated = getattr(accelerator_module(), "max_memory_allocated", None)
    if allocated is not None:
        return int(allocated())
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _device_bytes() -> int | None:
    """Return how much memory this rank's accelerator has; None without one, or where torch does not tell."""
    accelerator = accelerator_module()
    properties = getattr(accelerator, "get_device_properties", None)
    if accelerator is None or properties is None:
        return None
    total = getattr(properties(accelerator.current_device()), "total_memory", None)
    return None if total is None else int(total)
