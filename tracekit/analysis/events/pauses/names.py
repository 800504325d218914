"""What names of events, in any tool's trace, show a checkpoint, an evaluation or logging."""

from __future__ import annotations

import re

from tracekit.model.spans import EVALUATION_SPAN, LOGGING_PREFIX, CheckpointAction, parse_checkpoint_span

__all__ = ["is_evaluation", "is_logging", "parse_checkpoint_call"]

# Names of Python functions in recorded stacks.
_CHECKPOINT_FUNCTION = re.compile(
    r".*torch/(?:serialization|distributed/checkpoint/state_dict_(?:saver|loader))\.py\(\d+\): (save|load|async_save)"
)
_LOGGING_FUNCTION = re.compile(
    r"<built-in function print>|.*(?:/logging/__init__\.py\(\d+\): handle"
    r"|/tensorboardX?/writer\.py\(\d+\): (?:add_\w+|flush)|/wandb/sdk/wandb_run\.py\(\d+\): log)"
)
# What programs call an evaluation, with any marks around it: "## validation ##".
_EVALUATION_LABEL = re.compile(
    r"[\W_]*(?:eval|evaluate|evaluation|validate|validation)(?:[ _]step)?[\W_]*", re.IGNORECASE
)
_LIGHTNING_STEP = re.compile(r"\[pl\]\[profile\]\[Strategy\]\w+\.(?:validation|test)_step")
_DISTRIBUTED = "torch.distributed.checkpoint"


def parse_checkpoint_call(name: str) -> tuple[CheckpointAction, str] | None:
    """Return what a call of this name does, and by which of `CHECKPOINT_FUNCTIONS`; None if it is no such call."""
    if (call := parse_checkpoint_span(name)) is not None:
        return call
    match = _CHECKPOINT_FUNCTION.fullmatch(name)
    if match is None:
        return None
    action: CheckpointAction = "load" if match[1] == "load" else "async_save" if match[1] == "async_save" else "save"
    return action, _DISTRIBUTED if "/distributed/" in name else f"torch.{action}"


def is_evaluation(name: str) -> bool:
    """Return whether an event of this name is a forward of an evaluation, or what a program calls an evaluation."""
    return (
        name == EVALUATION_SPAN
        or _LIGHTNING_STEP.fullmatch(name) is not None
        or _EVALUATION_LABEL.fullmatch(name) is not None
    )


def is_logging(name: str) -> bool:
    """Return whether an event of this name is a call that logs."""
    return name.startswith(LOGGING_PREFIX) or _LOGGING_FUNCTION.fullmatch(name) is not None
