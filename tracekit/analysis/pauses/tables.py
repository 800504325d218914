"""The table of pauses.

What is kept of one rank's pauses: when it saves or loads a checkpoint, evaluates, or logs.

When a step pauses its training: its thread saves or loads a checkpoint, evaluates, or logs.

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
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tracekit.analysis.table import RANK, Column, Display, Table
from tracekit.model.columnar import Columnar
from tracekit.model.events import ABSENT, EventTable, Int32, Int64
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
from tracekit.model.summary import Part

PAUSES_BY_RANK = Table(
    "pauses",
    (
        RANK,
        Column("pause", "str", "", "checkpoint, evaluation or logging."),
        Column("action", "str?", "", "Of a checkpoint: save, async_save (its copy), await (its end) or load.", null=""),
        Column("function", "str?", "", "What saves or loads a checkpoint.", null=""),
        Column("steps", "int", "", "Complete steps of the rank with such a pause."),
        Column("of_steps", "int", "", "Complete steps of the rank."),
        Column("total_ns", "int", "ns", "Time of the step's thread in complete steps."),
        Column("each_ns", "float", "ns", "Time in a step that has such a pause, the mean."),
        Column("others_wait_ns", "float?", "ns", "For how long others waited for it then, the median of them."),
        Column("wait_kind", "str?", "", "The communication in which they waited longest."),
    ),
    Display(
        "Checkpoints, evaluation and logging (ms in a step that has them)",
        "rank | pause | action? | function? | {steps} of {of_steps} | each_ns | others_wait_ns | in=wait_kind",
        bars="each_ns",
    ),
)

PAUSES = ("checkpoint", "evaluation", "logging")

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


@dataclass(frozen=True, kw_only=True, eq=False)
class RankPauses(Columnar):
    """n disjoint pauses of the step's thread, each kind of them in order of time.

    Attributes:
        pause: index into `PAUSES`, int32 [n].
        action: of a checkpoint, index into `CHECKPOINT_ACTIONS`, or -1, int32 [n].
        function: of a checkpoint, index into `CHECKPOINT_FUNCTIONS`, or -1, int32 [n].
        step: number of the step in which it begins, or -1, int64 [n].
        start_ns: on the rank's wall clock, int64 [n].
        end_ns: int64 [n].
        waiting_ns: for how long the rank waits in communication then, int64 [n].
    """

    pause: Int32
    action: Int32
    function: Int32
    step: Int64
    start_ns: Int64
    end_ns: Int64
    waiting_ns: Int64

    @property
    def duration_ns(self) -> Int64:
        """Return the length of each pause, int64 [n]."""
        return self.end_ns - self.start_ns

    def by_step_ns(self) -> Counter[int]:
        """Return how long the pauses of each step are together."""
        total_ns = Counter[int]()
        for step, time_ns in zip(self.step.tolist(), self.duration_ns.tolist(), strict=True):
            total_ns[step] += time_ns
        return total_ns


PAUSE_TIMES = Part(name="pauses", type=RankPauses, empty=RankPauses.empty, merge=RankPauses.concatenate)


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
