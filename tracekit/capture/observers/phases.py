"""When the phases of a step run: spans around forward and backward passes, recomputation, clipping and scaling.

The user has to mark nothing. torch itself writes spans for the data loader and the optimizer.

`PhasesObserver` replaces each function where the work is done, so it does not matter under which name training imported
a function that calls it. The replacements are removed as the window closes. A checkpointed call keeps its wrapper,
which then does nothing.

`ForwardObserver` puts spans around the forward passes of a step or an evaluation, in jobs of several processes. In a
pipeline written by hand nothing else marks the work of a stage.

* A forward is a call that the step itself makes of a module with parameters. Calls inside another module do not count,
  and a loss has no parameters.
* An evaluation calls a module that is trained, in evaluation mode and without gradients. A module is trained if an
  optimizer has some of its parameters. The teacher of a distillation is not, nor is an average of the model's weights.
* Whether this is a pipeline follows from the messages of all ranks, so the analysis decides it.

`GradientModeObserver` puts spans around blocks without gradients, `no_grad` and `inference_mode`, in jobs of several
processes. An evaluation is such a block with a forward in it. It may be much more than the forward: it loads batches
and reduces metrics. A block has a span if gradients were on before it and no backward pass runs.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from tracekit.capture.hooks.live_objects import LiveObjects
from tracekit.capture.hooks.patching import PatchSet, patch_of, wrap_call
from tracekit.capture.hooks.span import ForwardSpans, leaf_inputs, runs_backward, span
from tracekit.capture.hooks.torch_compile import compiled_module_ids
from tracekit.capture.job.process import several_processes
from tracekit.capture.observers import MetadataDraft
from tracekit.capture.observers.parameters import LiveParameters, parameters_of_optimizers
from tracekit.model.metadata import Precision
from tracekit.model.spans import (
    BACKWARD_SPAN,
    EVALUATION_SPAN,
    NO_GRAD_SPAN,
    RECOMPUTE_SPAN,
    OptimizerAction,
    forward_span,
    optimizer_span,
)

# Clipping by norm ends in two functions; newer versions have other public names for them.
_CLIPPING = (
    ("torch.nn.utils.clip_grad", ("_get_total_norm", "_clip_grads_with_norm_", "clip_grad_value_")),
    ("torch.nn.utils", ("get_total_norm", "clip_grads_with_norm_", "clip_grad_value_")),
)
_SCALERS = (
    ("torch.amp.grad_scaler", "GradScaler"),
    ("torch.distributed.fsdp.sharded_grad_scaler", "ShardedGradScaler"),
)

_STAGE = ("torch.distributed.pipelining.stage", "_PipelineStageBase")

_BLOCKS = ("no_grad", "inference_mode")


class PhasesObserver:
    """Contributes the data types that are in use, besides the spans."""

    def __init__(self) -> None:
        self._patches = PatchSet()
        self._autocast: dict[str, None] = {}  # in order of first use
        self._parameters = LiveParameters([])  # as the window opened
        self._parameter_dtypes: list[str] = []
        self._scaled = False

    def attach(self, objects: LiveObjects) -> None:
        self._parameters = LiveParameters.of(objects)
        patches = [
            *patch_of("torch.autograd", None, "backward", _backward),
            *patch_of("torch.autograd", None, "grad", _grad),
            *patch_of("torch.utils.checkpoint", "_CheckpointFrame", "__init__", _init_checkpoint_frame),
            *patch_of("torch.utils.checkpoint", "CheckpointFunction", "forward", _reentrant_forward),
            *patch_of("torch.amp.autocast_mode", "autocast", "__enter__", self._autocast_entered),
            *patch_of("torch.distributed.fsdp", "FullyShardedDataParallel", "clip_grad_norm_", _clip),
        ]
        for module, names in _CLIPPING:
            for name in names:
                patches += patch_of(module, None, name, _clip)
        for module, scaler in _SCALERS:
            patches += patch_of(module, scaler, "step", self._scaler_step)
            patches += patch_of(module, scaler, "unscale_", _scaler_action("unscale"))
            patches += patch_of(module, scaler, "update", _scaler_action("update_scale"))
        self._patches.apply(patches)

    def detach(self, objects: LiveObjects) -> None:
        self._patches.remove()
        self._parameter_dtypes = LiveParameters.of(objects, self._parameters).dtypes()
        self._parameters = LiveParameters([])

    def contribute(self, draft: MetadataDraft) -> None:
        draft.precision = Precision(
            autocast=list(self._autocast), parameters=self._parameter_dtypes, scaled=self._scaled
        )

    def _autocast_entered(self, enter: Callable[..., Any], autocast: Any) -> Any:
        entered = enter(autocast)
        if autocast._enabled:
            self._autocast[str(autocast.fast_dtype).removeprefix("torch.")] = None
        return entered

    def _scaler_step(self, step: Callable[..., Any], scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        if not scaler.is_enabled():
            return step(scaler, optimizer, *args, **kwargs)
        self._scaled = True
        fused = getattr(optimizer, "_step_supports_amp_scaling", False)
        with span(optimizer_span("fused_scaled_step" if fused else "scaled_step")):
            return step(scaler, optimizer, *args, **kwargs)


def _backward(backward: Callable[..., None], *args: Any, **kwargs: Any) -> None:
    if runs_backward():
        return backward(*args, **kwargs)  # part of a pass: a reentrant checkpoint, or a hook
    with span(BACKWARD_SPAN):
        return backward(*args, **kwargs)


def _grad(grad: Callable[..., Any], outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
    """Put a span around a backward pass that returns its gradients.

    A pass that is differentiated again is a part of a forward, and so is one whose inputs are no leaves.
    """
    leaves = leaf_inputs(inputs)
    again = kwargs.get("create_graph", len(args) > 2 and args[2])
    if not leaves or again or runs_backward():
        return grad(outputs, inputs, *args, **kwargs)
    with span(BACKWARD_SPAN):
        return grad(outputs, inputs, *args, **kwargs)


def _init_checkpoint_frame(
    initialise: Callable[..., None], frame: Any, recompute: Callable[..., None], *args: Any, **kwargs: Any
) -> None:
    """A non-reentrant checkpoint: its frame calls `recompute` when a backward pass needs what was not saved."""
    initialise(frame, wrap_call(recompute, _recompute), *args, **kwargs)


def _reentrant_forward(forward: Callable[..., Any], ctx: Any, function: Callable[..., Any], *args: Any) -> Any:
    """A reentrant checkpoint calls `function` forward, and again in each backward pass."""
    ran = False

    def recompute_later(function: Callable[..., Any], *inputs: Any) -> Any:
        nonlocal ran
        if not ran:
            ran = True
            return function(*inputs)
        return _recompute(function, *inputs)

    return forward(ctx, wrap_call(function, recompute_later), *args)


def _recompute(function: Callable[..., Any], *inputs: Any) -> Any:
    with span(RECOMPUTE_SPAN):
        return function(*inputs)


def _clip(clip: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    with span(optimizer_span("clip")):
        return clip(*args, **kwargs)


def _scaler_action(action: OptimizerAction) -> Callable[..., Any]:
    def in_span(method: Callable[..., Any], scaler: Any, *args: Any, **kwargs: Any) -> Any:
        if not scaler.is_enabled():
            return method(scaler, *args, **kwargs)
        with span(optimizer_span(action)):
            return method(scaler, *args, **kwargs)

    return in_span


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


class GradientModeObserver:
    """Patches how these blocks are entered and left."""

    def __init__(self) -> None:
        self._patches = PatchSet()
        self._open: dict[int, tuple[Any, Any]] = {}  # by thread: the block and its span

    def attach(self, objects: LiveObjects) -> None:
        for block in _BLOCKS if several_processes() else ():
            self._patches.apply(patch_of("torch.autograd.grad_mode", block, "__enter__", self._enter))
            self._patches.apply(patch_of("torch.autograd.grad_mode", block, "__exit__", self._exit))

    def detach(self, objects: LiveObjects) -> None:
        self._patches.remove()
        self._open = {}

    def contribute(self, draft: MetadataDraft) -> None:
        """Nothing: the spans are in the trace."""

    def _enter(self, enter: Callable[..., Any], block: Any) -> Any:
        thread = threading.get_ident()
        opens = sys.modules["torch"].is_grad_enabled() and thread not in self._open and not runs_backward()
        entered = enter(block)
        if opens:
            around = span(NO_GRAD_SPAN)
            around.__enter__()
            self._open[thread] = block, around
        return entered

    def _exit(self, leave: Callable[..., Any], block: Any, *error: Any) -> Any:
        thread = threading.get_ident()
        opened, around = self._open.get(thread, (None, None))
        if opened is block:
            del self._open[thread]
            around.__exit__(None, None, None)
        return leave(block, *error)
