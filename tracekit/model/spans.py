"""How the spans that the capture writes into a trace are named, and what programs call an evaluation in a label."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, cast, get_args

LABEL_PREFIX = "tracekit."
CALIBRATION_SPAN = "tracekit.calibration"
"""Around the operations that the capture runs after the last step, to measure what recording costs."""
WAIT_SPAN = "tracekit.wait"
"""Around every blocking wait on communication."""
COALESCED_SPAN = "tracekit.coalesced"
"""Around messages that NCCL sends and receives as one batch, and the launch of their kernel."""
DATA_SPAN = "tracekit.data"
"""Around the wrapped data iterator."""
NO_GRAD_SPAN = "tracekit.no_grad"
"""Around a block without gradients, on the thread that entered it. A block inside another has no span."""
EVALUATION_SPAN = "tracekit.evaluation"
"""Around a forward, without gradients and in evaluation mode, of a module that the program trains."""
LOGGING_PREFIX = "tracekit.logging:"
"""Before the name of a function that logs."""
GARBAGE_COLLECTION_SPAN = "tracekit.gc"
"""Around a pause of Python's garbage collector, on the thread that it stopped first."""
BACKWARD_SPAN = "tracekit.backward"
"""Around a backward pass, on the thread that called it. A pass inside another has no span."""
RECOMPUTE_SPAN = "tracekit.recompute"
"""Around the forward of a checkpointed call that a backward pass recomputes."""

CheckpointAction = Literal["save", "async_save", "await", "load"]
"""async_save: copies the state, and begins a save that goes on in the background. await: waits for the end of one."""
CHECKPOINT_ACTIONS: tuple[CheckpointAction, ...] = get_args(CheckpointAction)
CHECKPOINT_FUNCTIONS = ("torch.save", "torch.load", "torch.distributed.checkpoint", "safetensors")
"""What saves and loads checkpoints: functions, and libraries."""
_CHECKPOINT_SPAN = re.compile(
    rf"tracekit\.checkpoint(?::(save|async_save|await|load) ({'|'.join(map(re.escape, CHECKPOINT_FUNCTIONS))}))?"
)

OptimizerAction = Literal["step", "clip", "unscale", "scaled_step", "fused_scaled_step", "update_scale"]
"""Work of the optimizer besides torch's `Optimizer.step#` and `Optimizer.zero_grad#`: an engine's step, gradient
clipping, and the actions of a `GradScaler`. A `fused_scaled_step` decides on the device whether to skip."""
OPTIMIZER_ACTIONS: tuple[OptimizerAction, ...] = get_args(OptimizerAction)
_OPTIMIZER_PREFIX = "tracekit.optimizer:"

FsdpAction = Literal["unshard", "prefetch", "use", "reduce"]
FsdpPhase = Literal["forward", "backward", "optimizer"]
_FSDP_SPAN = re.compile(r"tracekit\.fsdp:(unshard|prefetch|use|reduce) (forward|backward|optimizer) (.+)")
_ROOT = "<root>"
_MODULE_PREFIX = "tracekit.module:"

ActionKind = Literal["F", "B", "I", "W"]
"""F: forward. B: backward. If a schedule splits it, I: the gradient of the input, W: the gradient of the weights."""
ACTION_KINDS: tuple[ActionKind, ...] = get_args(ActionKind)
ACTION_NAMES = {"F": "forward", "B": "backward", "I": "input gradient", "W": "weight gradient"}
_PIPELINE_SPAN = re.compile(r"tracekit\.pp:([FBIW])\.s(\d{1,6})\.mb(\d{1,9})(\.loss)?")
_TORCH_ACTION = re.compile(r"PP:(\d{1,6})([FBIW])(\d{1,9})")
_MICROBATCH_LABEL = re.compile(r"(forward|backward)[ _](\d{1,9})", re.IGNORECASE)
_FORWARD_SPAN = re.compile(r"tracekit\.forward:m(\d{1,6})")

_DDP_HOOK_SPAN = re.compile(r"tracekit\.ddp:hook\.b(\d{1,6})\.n(\d{1,15})(\.last)? (.+)")

_RPC_SPAN = re.compile(r"tracekit\.rpc:(call|serve)\.(\d{1,9})\.(\d{1,15}) (?:->(\S+) )?(.+)")

EVALUATION_LABEL = re.compile(
    r"[\W_]*(?:eval|evaluate|evaluation|validate|validation)(?:[ _]step)?[\W_]*", re.IGNORECASE
)
"""Matches all of such a label, with any marks around it: `## validation ##`."""


@dataclass(frozen=True, kw_only=True)
class FsdpSpan:
    """What FSDP1 or ZeRO does with a module.

    Attributes:
        action: "unshard" as it is needed, "prefetch" to unshard ahead of need, "use" where it is needed, "reduce" of
            its gradients.
        module: "" for the outermost; all names, if several modules go together.
    """

    action: FsdpAction
    phase: FsdpPhase
    module: str


def fsdp_span(action: FsdpAction, phase: FsdpPhase, module: str) -> str:
    """Return `tracekit.fsdp:prefetch backward blocks.0`; the names of several modules are separated by |."""
    return f"tracekit.fsdp:{action} {phase} {module.replace(', ', '|') or _ROOT}"


def parse_fsdp_span(name: str) -> FsdpSpan | None:
    """Return what `fsdp_span` was called with; None for any other name."""
    match = _FSDP_SPAN.fullmatch(name)
    if match is None:
        return None
    action, phase, module = match.groups()
    return FsdpSpan(
        action=cast(FsdpAction, action),
        phase=cast(FsdpPhase, phase),
        module="" if module == _ROOT else module.replace("|", ", "),
    )


def checkpoint_span(action: CheckpointAction, function: str) -> str:
    """Return `tracekit.checkpoint:save torch.save`; function: one of `CHECKPOINT_FUNCTIONS`."""
    return f"tracekit.checkpoint:{action} {function}"


def parse_checkpoint_span(name: str) -> tuple[CheckpointAction, str] | None:
    """Return what `checkpoint_span` was called with; None for any other name. Older recordings name saves alone."""
    match = _CHECKPOINT_SPAN.fullmatch(name)
    if match is None:
        return None
    return cast(CheckpointAction, match[1] or "save"), match[2] or CHECKPOINT_FUNCTIONS[0]


def logging_span(function: str) -> str:
    """Return `tracekit.logging:SummaryWriter.add_scalar`."""
    return f"{LOGGING_PREFIX}{function}"


def engine_span(phase: Literal["forward", "backward"]) -> str:
    """Return `tracekit.engine:backward`: around a phase that DeepSpeed's engine runs, with its work around autograd."""
    return f"tracekit.engine:{phase}"


def optimizer_span(action: OptimizerAction) -> str:
    """Return `tracekit.optimizer:clip`."""
    return f"{_OPTIMIZER_PREFIX}{action}"


def parse_optimizer_span(name: str) -> OptimizerAction | None:
    """Return what `optimizer_span` was called with; None for any other name."""
    action = name.removeprefix(_OPTIMIZER_PREFIX)
    if action == name:
        return None
    return next((candidate for candidate in OPTIMIZER_ACTIONS if candidate == action), None)


@dataclass(frozen=True, kw_only=True)
class PipelineSpan:
    """An action of a pipeline's stage on a microbatch.

    Attributes:
        loss: the second part of a forward, on the last stage.
    """

    kind: ActionKind
    stage: int
    microbatch: int
    loss: bool = False


def pipeline_span(kind: ActionKind, stage: int, microbatch: int, *, loss: bool = False) -> str:
    """Return `tracekit.pp:F.s1.mb0`."""
    return f"tracekit.pp:{kind}.s{stage}.mb{microbatch}{'.loss' if loss else ''}"


def parse_pipeline_span(name: str) -> PipelineSpan | None:
    """Return what `pipeline_span` was called with; None for any other name."""
    match = _PIPELINE_SPAN.fullmatch(name)
    if match is None:
        return None
    kind, stage, microbatch, loss = match.groups()
    return PipelineSpan(
        kind=cast(ActionKind, kind), stage=int(stage), microbatch=int(microbatch), loss=loss is not None
    )


def parse_torch_action(name: str) -> PipelineSpan | None:
    """Return the action in torch's label `PP:2F0`; None for any other name.

    Torch writes it around an action of schedules that are lists of actions, and around the wait for what the action
    receives.
    """
    match = _TORCH_ACTION.fullmatch(name)
    if match is None:
        return None
    stage, kind, microbatch = match.groups()
    return PipelineSpan(kind=cast(ActionKind, kind), stage=int(stage), microbatch=int(microbatch))


def parse_microbatch_label(name: str) -> tuple[ActionKind, int] | None:
    """Return the kind and the microbatch of a label such as `Forward 3`; None for any other name.

    Torch writes it around a microbatch in schedules that have one stage a rank, and so do many training loops.
    """
    match = _MICROBATCH_LABEL.fullmatch(name)
    if match is None:
        return None
    return "F" if match[1].lower() == "forward" else "B", int(match[2])


def forward_span(module: int) -> str:
    """Return `tracekit.forward:m0`: module 0 of the program, called by the step itself and not by another module."""
    return f"tracekit.forward:m{module}"


def parse_forward_span(name: str) -> int | None:
    """Return what `forward_span` was called with; None for any other name."""
    match = _FORWARD_SPAN.fullmatch(name)
    return int(match[1]) if match is not None else None


def module_span(module: str) -> str:
    """Return `tracekit.module:blocks.0.up`, around a module's forward and its hooks; `module` is "" for the
    outermost.
    """
    return f"{_MODULE_PREFIX}{module or _ROOT}"


def parse_module_span(name: str) -> str | None:
    """Return what `module_span` was called with; None for any other name."""
    module = name.removeprefix(_MODULE_PREFIX)
    if module == name:
        return None
    return "" if module == _ROOT else module


@dataclass(frozen=True, kw_only=True)
class DdpHookSpan:
    """A call of the user's communication hook of a DDP module, for a bucket of `size_bytes` of gradients."""

    module: str
    bucket: int
    size_bytes: int
    is_last: bool


def ddp_hook_span(module: str, bucket: int, size_bytes: int, *, is_last: bool) -> str:
    """Return `tracekit.ddp:hook.b2.n1048576.last Net`."""
    return f"tracekit.ddp:hook.b{bucket}.n{size_bytes}{'.last' if is_last else ''} {module}"


def parse_ddp_hook_span(name: str) -> DdpHookSpan | None:
    """Return what `ddp_hook_span` was called with; None for any other name."""
    match = _DDP_HOOK_SPAN.fullmatch(name)
    if match is None:
        return None
    bucket, size_bytes, last, module = match.groups()
    return DdpHookSpan(module=module, bucket=int(bucket), size_bytes=int(size_bytes), is_last=last is not None)


@dataclass(frozen=True, kw_only=True)
class RpcSpan:
    """A remote call, as its caller issues it or as the callee runs it.

    Attributes:
        side: "call" at the caller, "serve" at the callee.
        caller: id of the worker, equal on both sides.
        number: of the call in the caller's process, equal on both sides.
        callee: name of the worker; None on the side "serve".
    """

    side: Literal["call", "serve"]
    caller: int
    number: int
    callee: str | None
    function: str


def rpc_call_span(caller: int, number: int, callee: str, function: str) -> str:
    """Return `tracekit.rpc:call.1.17 ->ps pull`."""
    return f"tracekit.rpc:call.{caller}.{number} ->{callee} {function}"


def rpc_service_span(caller: int, number: int, function: str) -> str:
    """Return `tracekit.rpc:serve.1.17 pull`."""
    return f"tracekit.rpc:serve.{caller}.{number} {function}"


def parse_rpc_span(name: str) -> RpcSpan | None:
    """Return what `rpc_call_span` or `rpc_service_span` was called with; None for any other name."""
    match = _RPC_SPAN.fullmatch(name)
    if match is None or (match[1] == "call") != (match[4] is not None):
        return None
    side, caller, number, callee, function = match.groups()
    return RpcSpan(
        side=cast(Literal["call", "serve"], side),
        caller=int(caller),
        number=int(number),
        callee=callee,
        function=function,
    )
