"""Sends and receives of one rank, matched to operators and to communication events.

The capture records them. A record is made right before its operator begins. In a trace of another tool the operators of
NCCL name group and peer. Those of Gloo show the peer's place in a group, but not which group, and without recorded
inputs nothing. What one rank cannot know, all ranks together may (`job.messages`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tracekit.model.communication import FIRST_PLACE, GroupKey, Messages
from tracekit.model.events import ABSENT, Bool, DecodedTrace, EventTable, Int32, Int64
from tracekit.rank.device_communication import MESSAGE_KINDS
from tracekit.rank.groups import GroupResolver
from tracekit.rank.lanes import Lanes
from tracekit.rank.message_operators import (
    join_launches,
    message_operators,
    records_of_operators,
)
from tracekit.rank.passes import Passes, host_waits, kinds_in_order, rank_passes
from tracekit.rank.ready_times import device_ready_times
from tracekit.rank.shapes import MESSAGE_OPERATORS, peers_and_tags, recorded_shapes
from tracekit.rank.steps import StepWindows


@dataclass(frozen=True, kw_only=True, eq=False)
class _Sides:
    """One side each of n messages; the columns are those of `Messages`.

    Attributes:
        created_ns: int64 [n], when each was recorded.
    """

    group: Int32
    peer: Int32
    tag: Int64
    is_send: Bool
    created_ns: Int64
    size_bytes: Int64


def rank_messages(trace: DecodedTrace, lanes: Lanes) -> Messages:
    """Return the messages of one recording; `group` is an index into the groups of the lanes' communication events.

    They come from the capture's records, or else from the operators of NCCL, or else of Gloo.
    """
    events, metadata = trace.events, trace.header.metadata
    if metadata is not None and metadata.p2p:
        sides, operators = _recorded_sides(trace), _recorded_operators(trace)
    else:
        sides, operators = _sides_of_operators(trace, lanes.communication_events.groups)
        if not len(operators) and lanes.device == "cpu":
            sides, operators = _sides_of_host_operators(trace)
    if not len(sides.peer):
        return Messages.empty()
    start_ns, end_ns, ready_ns = _times(events, lanes, operators)
    has_operator = operators != ABSENT
    issue_ns = np.where(has_operator, events.start_ns[operators], sides.created_ns)
    ready_ns = np.where(ready_ns == ABSENT, issue_ns, ready_ns)
    window = lanes.windows.index_of(issue_ns)
    order = np.argsort(issue_ns, kind="stable")
    passes = rank_passes(events, lanes, issue_ns[order], sides.is_send[order])
    after, before = _neighbours(passes, lanes.windows, window, issue_ns)
    nameless = order[sides.peer[order] == ABSENT]
    if len(nameless):
        after[nameless], before[nameless] = kinds_in_order(
            passes, lanes.windows, issue_ns[nameless], sides.is_send[nameless], after[nameless], before[nameless]
        )
    return Messages(
        step=np.where(window >= 0, lanes.windows.step[window], ABSENT),
        group=sides.group,
        peer=sides.peer,
        tag=sides.tag,
        is_send=sides.is_send,
        issue_ns=issue_ns,
        ready_ns=ready_ns,
        start_ns=start_ns,
        end_ns=end_ns,
        awaited_ns=_awaited_ns(events, lanes, end_ns),
        size_bytes=sides.size_bytes,
        after=after,
        before=before,
    ).rows(order)


def merge_messages(parts: Sequence[tuple[Messages, Sequence[GroupKey]]], groups: Sequence[GroupKey]) -> Messages:
    """Return the messages of a rank's recordings as one table, with `group` as an index into the rank's `groups`.

    Each of the `parts` comes with the groups of its recording.
    """
    number = {group: i for i, group in enumerate(groups)}
    renumbered = []
    for messages, window_groups in parts:
        numbers = np.array([*(number[group] for group in window_groups), ABSENT], dtype=np.int32)
        renumbered.append(replace(messages, group=numbers[messages.group]))
    return Messages.concatenate(renumbered)


def _recorded_sides(trace: DecodedTrace) -> _Sides:
    """Return the sides of the messages that the capture recorded."""
    assert trace.header.metadata is not None
    records, resolver = trace.header.metadata.p2p, GroupResolver(trace.header)
    return _Sides(
        group=np.array([resolver.by_id(record.group) for record in records], dtype=np.int32),
        peer=np.array([record.peer for record in records], dtype=np.int32),
        tag=np.array([record.tag for record in records], dtype=np.int64),
        is_send=np.array([record.direction == "send" for record in records], dtype=np.bool_),
        created_ns=np.array([record.created_ns or 0 for record in records], dtype=np.int64),
        size_bytes=np.array(
            [ABSENT if record.size_bytes is None else record.size_bytes for record in records], dtype=np.int64
        ),
    )


def _recorded_operators(trace: DecodedTrace) -> Int64:
    """Return int64 [n]: the row of the operator of each message that the capture recorded, or ABSENT."""
    assert trace.header.metadata is not None
    events = trace.events
    operators = events.each_once(events.named(MESSAGE_OPERATORS.__contains__))
    record = records_of_operators(trace, operators)
    result = np.full(len(trace.header.metadata.p2p), ABSENT, dtype=np.int64)
    result[record[record != ABSENT]] = operators[record != ABSENT]
    return result


def _sides_of_operators(trace: DecodedTrace, groups: Sequence[GroupKey]) -> tuple[_Sides, Int64]:
    """Return the sides of the messages that operators of NCCL show, and the rows of these operators.

    NCCL has no tags.
    """
    resolver = GroupResolver(trace.header)
    found = message_operators(trace.events, resolver)
    number = {group: i for i, group in enumerate(groups)}
    numbers = np.array([*(number.get(group, ABSENT) for group in resolver.groups()), ABSENT], dtype=np.int32)
    sides = _Sides(
        group=numbers[found.group],
        peer=found.peer.astype(np.int32),
        tag=np.full(len(found), ABSENT, dtype=np.int64),
        is_send=found.is_send,
        created_ns=trace.events.start_ns[found.row],
        size_bytes=found.size_bytes,
    )
    return sides, found.row


def _sides_of_host_operators(trace: DecodedTrace) -> tuple[_Sides, Int64]:
    """Return the sides of the messages that operators of Gloo show, and the rows of these operators.

    Their inputs name the peer by its place in a group. Which group that is, of several, all ranks together tell.
    """
    events, resolver = trace.events, GroupResolver(trace.header)
    places, shapes = peers_and_tags(events), recorded_shapes(events)
    rows = events.each_once(events.named(MESSAGE_OPERATORS.__contains__)).astype(np.int64)
    place, tag = np.array([places.get(row, (ABSENT, ABSENT)) for row in rows.tolist()], dtype=np.int64).reshape(-1, 2).T
    only = resolver.only_group()
    members = resolver.groups()[only].ranks if only is not None else ()
    known = dict(enumerate(members)) | {ABSENT: ABSENT}
    sides = _Sides(
        group=np.full(len(rows), ABSENT if only is None else only, dtype=np.int32),
        peer=np.array([known.get(number, FIRST_PLACE - number) for number in place.tolist()], dtype=np.int32),
        tag=tag,
        is_send=np.array([events.strings[events.name[row]] == "c10d::send" for row in rows.tolist()], dtype=np.bool_),
        created_ns=events.start_ns[rows],
        size_bytes=np.array(
            [shapes[row].size_bytes if row in shapes else ABSENT for row in rows.tolist()], dtype=np.int64
        ),
    )
    return sides, rows


def _times(events: EventTable, lanes: Lanes, operators: Int64) -> tuple[Int64, Int64, Int64]:
    """Return when the event of each operator's message began and ended, and when the rank was ready for it.

    All are int64 [n], or -1 where that is not known. `operators`, int64 [n], are rows of the event table, or -1.
    """
    communication = lanes.communication_events
    start_ns, end_ns, ready_ns = np.full((3, len(operators)), ABSENT, dtype=np.int64)
    rows = np.flatnonzero(operators != ABSENT)
    rows = rows[np.argsort(events.start_ns[operators[rows]], kind="stable")]
    kernels = np.flatnonzero(np.isin(communication.kind, MESSAGE_KINDS))
    number, of_kernel = join_launches(
        events, operators[rows], communication.launch_ns[kernels], communication.launch_track[kernels]
    )
    kernels, of_kernel = kernels[of_kernel != ABSENT], of_kernel[of_kernel != ABSENT]
    if not len(kernels):
        return start_ns, end_ns, ready_ns
    first_ns, reached_ns = np.full((2, len(rows) + 1), np.iinfo(np.int64).max, dtype=np.int64)
    last_ns = np.full(len(rows) + 1, ABSENT, dtype=np.int64)
    np.minimum.at(first_ns, of_kernel, communication.start_ns[kernels])
    np.maximum.at(last_ns, of_kernel, communication.end_ns[kernels])
    first_ns[last_ns == ABSENT] = ABSENT  # an operator without an event, or no operator
    start_ns[rows], end_ns[rows] = first_ns[number], last_ns[number]
    ready_ns[rows] = start_ns[rows]
    if lanes.device == "gpu":
        np.minimum.at(reached_ns, of_kernel, device_ready_times(events, lanes).ready_ns[kernels])
        ready_ns[rows] = np.minimum(reached_ns[number], start_ns[rows])
    return start_ns, end_ns, ready_ns


def _awaited_ns(events: EventTable, lanes: Lanes, end_ns: Int64) -> Int64:
    """Return since when a CPU rank had waited when each message ended, int64 [n], or -1.

    The message's event ends within the call that waits. Calls of several threads may overlap: the first one to return
    after the end is taken.
    """
    since_ns, until_ns = host_waits(events, lanes)
    if not len(until_ns) or lanes.device == "gpu":
        return np.full(len(end_ns), ABSENT, dtype=np.int64)
    index = np.minimum(np.searchsorted(until_ns, end_ns, side="left"), len(until_ns) - 1)
    inside = (since_ns[index] <= end_ns) & (end_ns <= until_ns[index])
    return np.where(inside, since_ns[index], ABSENT)


def _neighbours(passes: Passes, windows: StepWindows, window: Int64, time_ns: Int64) -> tuple[Int32, Int32]:
    """Return the kind of the pass in or after which each time falls in its step, and of the pass in or before which:
    int32 [n].

    `window` is the index of the step's window, int64 [n]. ABSENT means that the step has no such pass.
    """
    window_of_pass = windows.index_of(passes.start_ns)
    last = np.searchsorted(passes.start_ns, time_ns, side="right") - 1
    inside = (last >= 0) & (time_ns < _at(passes.end_ns, last))
    following = np.where(inside, last, last + 1)
    results = []
    for index in (last, following):
        valid = (index >= 0) & (index < len(passes)) & (window >= 0)
        valid &= np.where(valid, _at(window_of_pass, index), ABSENT) == window
        results.append(np.where(valid, _at(passes.kind, index), ABSENT).astype(np.int32))
    return results[0], results[1]


def _at(values: np.ndarray, index: Int64) -> np.ndarray:
    """Return the values at `index`; any value for those that do not exist."""
    if not len(values):
        return np.full(len(index), ABSENT, dtype=np.int64)
    return np.asarray(values[np.clip(index, 0, len(values) - 1)])
