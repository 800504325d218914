"""Puts spans around the forward passes of a step or an evaluation, in jobs of several processes.

In a pipeline written by hand nothing else marks the work of a stage. (Backward passes have spans by `phases.py`.)

An evaluation calls a module that is trained, in evaluation mode and without gradients. A module is trained if an
optimizer has some of its parameters. The teacher of a distillation is not, nor is an average of the model's weights.

A forward is a call that the step itself makes of a module with parameters; calls inside another module do not count,
and a loss has no parameters. Whether this is a pipeline follows from the messages of all ranks, so it is left to the
analysis.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from tracekit.capture.hooks.live_objects import LiveObjects
from tracekit.capture.hooks.module_spans import ForwardSpans
from tracekit.capture.hooks.torch_compile import compiled_module_ids
from tracekit.capture.job.process import several_processes
from tracekit.capture.observers import MetadataDraft
from tracekit.capture.observers.parameters import parameters_of_optimizers
from tracekit.model.spans import EVALUATION_SPAN, forward_span

_STAGE = ("torch.distributed.pipelining.stage", "_PipelineStageBase")

__all__ = ["ForwardObserver", "outermost_modules"]


class ForwardObserver:
    """Hooks the outermost modules of the program."""

    def __init__(self) -> None:
        self._spans = ForwardSpans(outermost=True)

    def attach(self, objects: LiveObjects) -> None:
        # Alone, hooks on modules may cost another compilation.
        if not several_processes() or objects.instances(*_STAGE):
            return
        compiled, trained = compiled_module_ids(objects), set(map(id, parameters_of_optimizers(objects)))
        for number, module in enumerate(outermost_modules(objects.instances("torch.nn.modules.module", "Module"))):
            evaluation = EVALUATION_SPAN if any(id(each) in trained for each in module.parameters()) else None
            if id(module) not in compiled or type(module).__name__ == "OptimizedModule":
                self._spans.add(module, forward_span(number), evaluation)
            wrapped = module._modules.get("module")  # programs call it past its wrapper to evaluate it
            if evaluation is not None and wrapped is not None and id(wrapped) not in compiled:
                self._spans.add(wrapped, None, evaluation)

    def detach(self, objects: LiveObjects) -> None:
        self._spans.remove()

    def contribute(self, draft: MetadataDraft) -> None:
        """Nothing: the spans are in the trace."""


def outermost_modules(modules: Iterable[Any]) -> list[Any]:
    """Return the modules with parameters that are part of no other module, in the given order.

    Modules in bare containers (lists, dictionaries) count as outermost, because nobody calls a container.
    """
    nn = sys.modules["torch"].nn
    containers = (nn.ModuleList, nn.ModuleDict)
    all_modules = list(modules)
    inner = {id(child) for module in all_modules if not isinstance(module, containers) for child in module.children()}
    pending = [module for module in all_modules if isinstance(module, containers) and id(module) in inner]
    while pending:
        for child in pending.pop().children():
            inner.add(id(child))
            if isinstance(child, containers):
                pending.append(child)
    return [
        module
        for module in all_modules
        if id(module) not in inner
        and not isinstance(module, containers)
        and next(module.parameters(), None) is not None
    ]
