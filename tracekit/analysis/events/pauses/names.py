"""What names of events, in any tool's trace, show a checkpoint, an evaluation or logging."""

from __future__ import annotations

import re

from tracekit.model.names.evaluations import EVALUATION_LABEL
from tracekit.model.spans import EVALUATION_SPAN, LABEL_PREFIX, LOGGING_PREFIX, CheckpointAction, parse_checkpoint_span

__all__ = ["is_evaluation", "is_logging", "parse_checkpoint_call"]

# Names of Python functions in recorded stacks.
_CHECKPOINT_FUNCTION = re.compile(
    r".*torch/(?:serialization|distributed/checkpoint/state_dict_(?:saver|loader))\.py\(\d+\): (save|load|async_save)"
)
_LOGGING_FUNCTION = re.compile(
    r".*(?:/logging/__init__\.py\(\d+\): handle"
    r"|/tensorboardX?/writer\.py\(\d+\): (?:add_\w+|flush)|/wandb/sdk/wandb_run\.py\(\d+\): log)"
)
_PRINT = "<built-in function print>"
_IN_PYTHON = ".py("  # of a name with a file and a line; matching others would take long
_LIGHTNING = "[pl]"
# A hyphen is in the pseudonym of a class.
_LIGHTNING_STEP = re.compile(r"\[pl\]\[profile\]\[Strategy\][\w-]+\.(?:validation|test)_step")
_DISTRIBUTED = "torch.distributed.checkpoint"


def parse_checkpoint_call(name: str) -> tuple[CheckpointAction, str] | None:
    """Return what a call of this name does, and by which of `CHECKPOINT_FUNCTIONS`; None if it is no such call."""
    if name.startswith(LABEL_PREFIX):
        return parse_checkpoint_span(name)
    match = _CHECKPOINT_FUNCTION.fullmatch(name) if _IN_PYTHON in name else None
    if match is None:
        return None
    action: CheckpointAction = "load" if match[1] == "load" else "async_save" if match[1] == "async_save" else "save"
    return action, _DISTRIBUTED if "/distributed/" in name else f"torch.{action}"


def is_evaluation(name: str) -> bool:
    """Return whether an event of this name is a forward of an evaluation, or what a program calls an evaluation."""
    if "val" not in name.lower():  # which takes less time than the patterns
        return name.startswith(_LIGHTNING) and _LIGHTNING_STEP.fullmatch(name) is not None
    patterns = (EVALUATION_LABEL, _LIGHTNING_STEP)
    return name == EVALUATION_SPAN or any(pattern.fullmatch(name) is not None for pattern in patterns)


def is_logging(name: str) -> bool:
    """Return whether an event of this name is a call that logs."""
    if name.startswith(LOGGING_PREFIX) or name == _PRINT:
        return True
    return _IN_PYTHON in name and _LOGGING_FUNCTION.fullmatch(name) is not None
