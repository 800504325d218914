"""Summaries of ranks that exchange messages or run actions of a pipeline, without traces. Times are nanoseconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracekit.explain.pipeline.tables import Actions
from tracekit.explain.sections import ALL_PARTS
from tracekit.model.communication import GroupKey, Messages
from tracekit.model.metadata import PipelineLayout
from tracekit.model.run import ClockModel, Run
from tracekit.model.spans import ACTION_KINDS
from tracekit.model.summary import PipelineMembership, RankSummary, StepParts

WORLD = GroupKey(description="default_pg", ranks=(0, 1, 2, 3))


@dataclass(frozen=True, kw_only=True)
class Message:
    """A send to or a receive from `peer`.

    Attributes:
        after: the letter of the action in or after which it was issued.
        before: the letter of the action in or before which it was issued.
        awaited_ns: since when the rank waited for it; None for a receive that it waited for at once. Of a send -1.
    """

    peer: int
    at_ns: int
    is_send: bool
    took_ns: int = 10
    step: int = 5
    size_bytes: int = 64
    tag: int = 0
    group: int = 0
    after: str = ""
    before: str = ""
    awaited_ns: int | None = None


def send(peer: int, at_ns: int, **others: Any) -> Message:
    return Message(peer=peer, at_ns=at_ns, is_send=True, **others)


def recv(peer: int, at_ns: int, **others: Any) -> Message:
    return Message(peer=peer, at_ns=at_ns, is_send=False, **others)


def rank(
    number: int,
    messages: Sequence[Message] = (),
    *,
    steps: Sequence[int] = (5,),
    host: str = "node0",
    pipeline: PipelineLayout | None = None,
    pipeline_ranks: Sequence[int] = (),
    **others: Any,
) -> RankSummary:
    """Return a summary. `others` are fields of the summary, or its parts by name."""
    fields: dict[str, Any] = {
        "rank": number,
        "world_size": 4,
        "files": (),
        "run_id": "run-1",
        "attempt": 0,
        "host": host,
        "host_id": None,
        "serves_only": False,
        "pipeline": PipelineMembership(layout=pipeline, ranks=tuple(pipeline_ranks)) if pipeline else None,
        "device": "cpu",
        "device_name": None,
        "strategies": (),
        "strategies_inferred": False,
        "groups": (WORLD,),
        "mesh": None,
        "clock": None,
        "recorded_steps": tuple(steps),
        "steps": tuple(map(_step, steps)),
        "event_count": 0,
        "first_event_ns": 0,
        "notes": (),
        "messages": _messages(messages),
    }
    parts = {name: others.pop(name, part.empty()) for name, part in ALL_PARTS.items()}
    return RankSummary(**fields | others, parts=parts)


def actions(*rows: tuple[str, int, int, int], stage: int = 0, wait_ns: int = 0, step: int = 5) -> Actions:
    """Return actions from rows of (letter, microbatch, start, end)."""
    count = len(rows)
    return Actions(
        step=np.full(count, step, dtype=np.int64),
        stage=np.full(count, stage, dtype=np.int32),
        microbatch=np.array([row[1] for row in rows], dtype=np.int32),
        kind=np.array([ACTION_KINDS.index(row[0]) for row in rows], dtype=np.int32),
        issue_ns=np.array([row[2] for row in rows], dtype=np.int64),
        start_ns=np.array([row[2] for row in rows], dtype=np.int64),
        end_ns=np.array([row[3] for row in rows], dtype=np.int64),
        wait_ns=np.full(count, wait_ns, dtype=np.int64),
        idle_ns=np.zeros(count, dtype=np.int64),
        other_ns=np.zeros(count, dtype=np.int64),
        data_ns=np.zeros(count, dtype=np.int64),
    )


def clocks(count: int, *, offsets_ns: Sequence[int] = (), method: Any = "probe", error_ns: int = 0) -> list[ClockModel]:
    offsets = [*offsets_ns, *([0] * count)]
    return [ClockModel(rank=i, method=method, offset_ns=offsets[i], error_ns=error_ns) for i in range(count)]


def run_of(ranks: Sequence[RankSummary], **others: Any) -> Run:
    fields: dict[str, Any] = {
        "paths": ("run",),
        "run_id": "run-1",
        "attempt": 0,
        "world_size": len(ranks),
        "ranks": tuple(ranks),
        "missing_ranks": (),
        "selected_ranks": None,
        "groups": (WORLD,),
        "clocks": tuple(clocks(len(ranks))),
        "other_runs": (),
        "notes": (),
    }
    return Run(**fields | others)


def _step(number: int) -> StepParts:
    return StepParts(
        step=number,
        start_ns=0,
        data_ns=None,
        step_ns=100,
        compute_ns=0,
        comm_ns=0,
        overlapped_comm_ns=0,
        exposed_comm_ns=0,
        exposed_copy_ns=0,
        idle_ns=100,
        complete=True,
    )


def _messages(rows: Sequence[Message]) -> Messages:
    ordered = sorted(rows, key=lambda row: row.at_ns)

    def wide(values: list[int]) -> np.ndarray:
        return np.array(values, dtype=np.int64)

    def narrow(values: list[int]) -> np.ndarray:
        return np.array(values, dtype=np.int32)

    def kinds(letters: list[str]) -> np.ndarray:
        return narrow([ACTION_KINDS.index(letter) if letter else -1 for letter in letters])

    return Messages(
        step=wide([row.step for row in ordered]),
        group=narrow([row.group for row in ordered]),
        peer=narrow([row.peer for row in ordered]),
        tag=wide([row.tag for row in ordered]),
        is_send=np.array([row.is_send for row in ordered], dtype=np.bool_),
        issue_ns=wide([row.at_ns for row in ordered]),
        ready_ns=wide([row.at_ns for row in ordered]),
        start_ns=wide([row.at_ns for row in ordered]),
        end_ns=wide([row.at_ns + row.took_ns if row.took_ns >= 0 else -1 for row in ordered]),
        awaited_ns=wide([_awaited_ns(row) for row in ordered]),
        size_bytes=wide([row.size_bytes for row in ordered]),
        after=kinds([row.after for row in ordered]),
        before=kinds([row.before for row in ordered]),
    )


def _awaited_ns(row: Message) -> int:
    if row.awaited_ns is None:
        return -1 if row.is_send or row.took_ns < 0 else row.at_ns
    return row.awaited_ns
