"""When a step pauses its training: its thread saves or loads a checkpoint, evaluates, or logs.

* Checkpoint: calls that save or load one, as the capture or recorded Python stacks show them, and waits for the end of
  an asynchronous save. What such a save does on other threads holds nobody up. A file that a data loader loads is data.
* Evaluation: forwards of a trained module in evaluation mode without gradients, the whole blocks without gradients
  around them, and what lies between two of these if nothing of the training does. In traces without such spans it is
  what the program, or Lightning's profiler, labels as an evaluation or validation.
* Logging: calls that log or write to a standard stream, as the capture or recorded Python stacks show them.

Of these that overlap, checkpoints come before evaluation, and evaluation before data loading and logging. The names of
events show all three, in any tool's trace.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tracekit.model.events import ABSENT, EventTable, Int64
from tracekit.model.intervals import EMPTY, Intervals
from tracekit.model.spans import (
    CHECKPOINT_ACTIONS,
    CHECKPOINT_FUNCTIONS,
    EVALUATION_LABEL,
    EVALUATION_SPAN,
    LABEL_PREFIX,
    LOGGING_PREFIX,
    NO_GRAD_SPAN,
    CheckpointAction,
    parse_checkpoint_span,
)

PAUSES = ("checkpoint", "evaluation", "logging")

# Names of Python functions in recorded stacks.
_CHECKPOINT_FUNCTION = re.compile(
    r".*torch/(?:serialization|distributed/checkpoint/state_dict_(?:saver|loader))\.py\(\d+\): (save|load|async_save)"
)
_LOGGING_FUNCTION = re.compile(  # torch names files below the folders of sys.path: `logging/__init__.py(1636): handle`
    r"(?:.*/)?(?:logging/__init__\.py\(\d+\): handle|loguru/_logger\.py\(\d+\): _log"
    r"|tensorboardX?/writer\.py\(\d+\): (?:add_\w+|flush)|wandb/sdk/wandb_run\.py\(\d+\): _?log"
    r"|mlflow/tracking/fluent\.py\(\d+\): log_\w+)"
)
_PRINT = "<built-in function print>"
_IN_PYTHON = ".py("  # of a name with a file and a line; matching others would take long
_LIGHTNING = "[pl]"
# A hyphen is in the pseudonym of a class.
_LIGHTNING_STEP = re.compile(r"\[pl\]\[profile\]\[Strategy\][\w-]+\.(?:validation|test)_step")
_DISTRIBUTED = "torch.distributed.checkpoint"


@dataclass(frozen=True, kw_only=True, eq=False)
class PauseTimes:
    """When the step's thread does what; the three are disjoint."""

    checkpoint: Intervals
    evaluation: Intervals
    logging: Intervals


@dataclass(frozen=True, kw_only=True, eq=False)
class CheckpointCalls:
    """k calls that save or load a checkpoint, none inside another, in order of time.

    Attributes:
        start_ns: int64 [k].
        end_ns: int64 [k].
        action: index into `CHECKPOINT_ACTIONS`, int64 [k].
        function: index into `CHECKPOINT_FUNCTIONS`, int64 [k].
    """

    start_ns: Int64
    end_ns: Int64
    action: Int64
    function: Int64


def checkpoint_calls(events: EventTable, threads: Int64) -> CheckpointCalls:
    """Return the calls on some tracks that save or load a checkpoint, or wait for the end of a save."""
    rows = _rows(events, threads, lambda name: parse_checkpoint_call(name) is not None)
    rows = rows[np.lexsort((-events.end_ns[rows], events.start_ns[rows]))]
    reach_ns = np.maximum.accumulate(events.end_ns[rows]) if len(rows) else events.end_ns[rows]
    rows = rows[np.append(True, events.start_ns[rows[1:]] >= reach_ns[:-1])[: len(rows)]]
    calls = [
        parse_checkpoint_call(events.strings[name]) or ("save", CHECKPOINT_FUNCTIONS[0]) for name in events.name[rows]
    ]
    return CheckpointCalls(
        start_ns=events.start_ns[rows],
        end_ns=events.end_ns[rows],
        action=np.array([CHECKPOINT_ACTIONS.index(action) for action, _ in calls], dtype=np.int64),
        function=np.array([CHECKPOINT_FUNCTIONS.index(function) for _, function in calls], dtype=np.int64),
    )


def evaluation_evidence(events: EventTable, track: int) -> Intervals:
    """Return when a track shows evaluation: forwards, and the blocks without gradients in which they are."""
    if track == ABSENT:
        return EMPTY
    thread = np.array([track], dtype=np.int64)
    forwards = _rows(events, thread, is_evaluation)
    if not len(forwards):
        return EMPTY
    blocks = _rows(events, thread, NO_GRAD_SPAN.__eq__)
    starts_ns = np.sort(events.start_ns[forwards])
    first, stop = (np.searchsorted(starts_ns, times) for times in (events.start_ns[blocks], events.end_ns[blocks]))
    return Intervals.of_events(events, np.concatenate((forwards, blocks[first < stop])))


def pause_times(events: EventTable, thread: int, loading: Intervals, training_ns: Int64) -> PauseTimes:
    """Return the pauses on the step's thread. training_ns: when steps, and events of training, begin, int64 [n]."""
    if thread == ABSENT:
        return PauseTimes(checkpoint=EMPTY, evaluation=EMPTY, logging=EMPTY)
    track = np.array([thread], dtype=np.int64)
    calls = checkpoint_calls(events, track)
    checkpoint = Intervals.union_of(calls.start_ns, calls.end_ns) - loading
    evaluation = _joined(evaluation_evidence(events, thread), np.sort(training_ns)) - checkpoint
    logging = Intervals.of_events(events, _rows(events, track, is_logging))
    return PauseTimes(checkpoint=checkpoint, evaluation=evaluation, logging=logging - loading - checkpoint - evaluation)


def _joined(times: Intervals, training_ns: Int64) -> Intervals:
    """Return times with what lies between two of them, unless something of the training begins there."""
    begin_ns, end_ns = times.end_ns[:-1], times.start_ns[1:]
    first, stop = np.searchsorted(training_ns, begin_ns, "left"), np.searchsorted(training_ns, end_ns, "right")
    nothing = first == stop
    return times | Intervals.union_of(begin_ns[nothing], end_ns[nothing])


def _rows(events: EventTable, tracks: Int64, predicate: Callable[[str], bool]) -> Int64:
    on_host = events.on_tracks(tracks) & ~events.in_category("gpu_user_annotation")
    rows: Int64 = np.flatnonzero(events.named(predicate) & on_host)
    return rows


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
