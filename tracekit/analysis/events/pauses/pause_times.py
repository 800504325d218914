"""When a step pauses its training: its thread saves or loads a checkpoint, evaluates, or logs.

* Checkpoint: calls that save or load one, as the capture or recorded Python stacks show them, and waits for the end of
  an asynchronous save. What such a save does on other threads holds nobody up. A file that a data loader loads is data.
* Evaluation: forwards of a trained module in evaluation mode without gradients, the whole blocks without gradients
  around them, and what lies between two of these if nothing of the training does. In traces without such spans it is
  what the program, or Lightning's profiler, labels as an evaluation or validation.
* Logging: calls that log or write to a standard stream, as the capture or recorded Python stacks show them.

Of these that overlap, checkpoints come before evaluation, and evaluation before data loading and logging.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tracekit.analysis.events.pauses.names import is_evaluation, is_logging, parse_checkpoint_call
from tracekit.model.events import ABSENT, EventTable, Int64
from tracekit.model.intervals import EMPTY, Intervals
from tracekit.model.spans import (
    CHECKPOINT_ACTIONS,
    CHECKPOINT_FUNCTIONS,
    NO_GRAD_SPAN,
)

__all__ = ["PAUSES", "CheckpointCalls", "PauseTimes", "checkpoint_calls", "evaluation_evidence", "pause_times"]

PAUSES = ("checkpoint", "evaluation", "logging")


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
