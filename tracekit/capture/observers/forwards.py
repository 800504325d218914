"""Forward passes of the step become spans, in jobs of several processes: a pipeline written by hand shows nothing else
of its stages. (Backward passes have theirs already: `phases.py`.)

A forward is a call of a module that the step itself makes (of no module within another), if it has parameters: a loss
has none. What these make of a pipeline only the messages of all ranks together can tell, so that is left to the
analysis.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import partial
from typing import Any

from tracekit.capture.live import Program
from tracekit.capture.observers import Draft
from tracekit.capture.patching import harmless
from tracekit.capture.span import span
from tracekit.model.spans import forward_span

_STAGE = ("torch.distributed.pipelining.stage", "_PipelineStageBase")

__all__ = ["ForwardObserver", "outermost_modules"]


class ForwardObserver:
    def __init__(self) -> None:
        self._hooks: list[Any] = []
        self._open: Any = None  # the span of the forward that is running
        self._depth = 0

    def attach(self, program: Program) -> None:
        distributed = sys.modules.get("torch.distributed")
        several = distributed is not None and distributed.is_initialized() and distributed.get_world_size() > 1
        if not several or program.instances(*_STAGE):
            return
        for number, module in enumerate(outermost_modules(program.instances("torch.nn.modules.module", "Module"))):
            before = module.register_forward_pre_hook(harmless(partial(self._before, forward_span(number))))
            after = module.register_forward_hook(harmless(self._after), always_call=True)
            self._hooks += [before, after]

    def detach(self, program: Program) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def contribute(self, draft: Draft) -> None:
        """Nothing: the spans are in the trace."""

    def _before(self, label: str, *call: Any) -> None:
        if sys.modules["torch"]._C._current_graph_task_id() != -1:
            return  # a checkpoint that a backward pass computes again
        self._depth += 1
        if self._depth == 1:
            self._open = span(label)
            self._open.__enter__()

    def _after(self, *call: Any) -> None:
        if sys.modules["torch"]._C._current_graph_task_id() != -1:
            return
        self._depth -= 1
        if self._depth == 0 and self._open is not None:
            self._open.__exit__(None, None, None)
            self._open = None


def outermost_modules(modules: Iterable[Any]) -> list[Any]:
    """Of all modules of a program those with parameters that are part of no other, in the given order. What bare
    containers (lists, dictionaries) hold counts as called by itself, for nobody calls these. A module that was
    compiled in place is left out: a hook would have it compiled again.
    """
    nn = sys.modules["torch"].nn
    containers = (nn.ModuleList, nn.ModuleDict)
    every = list(modules)
    inner = {id(child) for module in every if not isinstance(module, containers) for child in module.children()}
    pending = [module for module in every if isinstance(module, containers) and id(module) in inner]
    while pending:
        for child in pending.pop().children():
            inner.add(id(child))
            if isinstance(child, containers):
                pending.append(child)
    return [
        module
        for module in every
        if id(module) not in inner
        and not isinstance(module, containers)
        and getattr(module, "_compiled_call_impl", None) is None
        and next(module.parameters(), None) is not None
    ]
