"""Sends and receives of one rank: the capture's records, matched to operators and to communication events.

A record is made right before its operator begins. A trace of another tool has no records, and so no messages: an
operator shows its peer's place in a group, but not which group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tracekit.analysis.events.groups import GroupResolver, key_of_recorded_group
from tracekit.analysis.events.shapes import peers_and_tags
from tracekit.analysis.timeline.steps import StepWindows
from tracekit.model.communication import KINDS, CommunicationEvents, GroupKey
from tracekit.model.events import ABSENT, DecodedTrace, EventTable, Int32, Int64
from tracekit.model.messages import Messages
from tracekit.model.metadata import PointToPointRecord
from tracekit.model.spans import ACTION_KINDS, BACKWARD_SPAN, parse_forward_span, parse_pipeline_span

_OPERATORS = {"c10d::send": "send", "c10d::recv_": "recv", "c10d::recv_any_source_": "any"}
_EVENT_KINDS = tuple(KINDS.index(kind) for kind in ("send", "recv", "send_recv"))
_FORWARD, _BACKWARD = ACTION_KINDS.index("F"), ACTION_KINDS.index("B")

__all__ = ["merge_messages", "message_of_operator", "passes_of", "rank_messages", "records_of_operators"]


def records_of_operators(trace: DecodedTrace, operators: Int64) -> Int64:
    """Return int64 [o]: the index in the metadata's `p2p` of each operator in `operators` (rows in order of time), or
    ABSENT.

    The k-th operator of a direction, peer and tag has the k-th record of these. Where the counts differ, an operator
    has the last record that was made before it began.
    """
    events, metadata = trace.events, trace.header.metadata
    result = np.full(len(operators), ABSENT, dtype=np.int64)
    if metadata is None or not metadata.p2p:
        return result
    places_in_group = {
        group.id: {rank: place for place, rank in enumerate(key_of_recorded_group(group, metadata).ranks)}
        for group in metadata.groups
    }
    places = peers_and_tags(events)
    places_known = bool(places)
    by_key: dict[tuple[object, ...], list[int]] = {}
    for index, record in enumerate(metadata.p2p):
        by_key.setdefault(_key_of_record(record, places_in_group.get(record.group, {}), places_known), []).append(index)
    operators_by_key: dict[tuple[object, ...], list[int]] = {}
    for position, row in enumerate(operators.tolist()):
        direction = _OPERATORS.get(events.strings[events.name[row]])
        if direction is not None:
            place = places.get(row, (ABSENT, ABSENT)) if places_known and direction != "any" else ()
            operators_by_key.setdefault((direction, *place), []).append(position)
    created_ns = np.array([record.created_ns or 0 for record in metadata.p2p], dtype=np.int64)
    for key, position_list in operators_by_key.items():
        positions = np.array(position_list, dtype=np.int64)
        records = np.array(by_key.get(key, ()), dtype=np.int64)
        if len(records) == len(positions):
            result[positions] = records
        elif len(records):
            result[positions] = _latest_before(events.start_ns[operators[positions]], records, created_ns[records])
    return result


def message_of_operator(trace: DecodedTrace, index: int) -> PointToPointRecord | None:
    """Return the record at an index from `records_of_operators`; None for ABSENT."""
    metadata = trace.header.metadata
    return None if metadata is None or index == ABSENT else metadata.p2p[index]


def _key_of_record(record: PointToPointRecord, places: Mapping[int, int], known: bool) -> tuple[object, ...]:
    if record.any_source:
        return ("any",)
    return (record.direction, places.get(record.peer, ABSENT), record.tag) if known else (record.direction,)


def _latest_before(start_ns: Int64, records: Int64, created_ns: Int64) -> Int64:
    """Return int64 [o]: for each start, in order, the last of `records` made before it; each record once, else
    ABSENT.
    """
    order = np.argsort(created_ns, kind="stable")
    place = np.searchsorted(created_ns[order], start_ns, side="right") - 1
    repeated = np.zeros(len(place), dtype=np.bool_)
    repeated[1:] = place[1:] == place[:-1]
    return np.where((place >= 0) & ~repeated, records[order][np.maximum(place, 0)], ABSENT)


def passes_of(events: EventTable) -> tuple[Int64, Int32]:
    """Return the spans of forward and backward passes, or of a pipeline's actions, in order of time, and their kind.

    The rows are int64 [p]; the kinds are int32 [p], the index of "F" or "B" in `ACTION_KINDS`. A backward inside an
    action is part of that action.
    """
    kind_of_name = np.full(len(events.strings) + 1, ABSENT, dtype=np.int32)
    actions = False
    for number, name in enumerate(events.strings):
        if (action := parse_pipeline_span(name)) is not None:
            actions = True
            kind_of_name[number] = _FORWARD if action.kind == "F" else _BACKWARD
    for number, name in enumerate(events.strings if not actions else ()):
        if name == BACKWARD_SPAN:
            kind_of_name[number] = _BACKWARD
        elif parse_forward_span(name) is not None:
            kind_of_name[number] = _FORWARD
    rows = events.each_once(kind_of_name[events.name] != ABSENT)
    return rows.astype(np.int64), kind_of_name[events.name[rows]]


def rank_messages(trace: DecodedTrace, windows: StepWindows, communication: CommunicationEvents) -> Messages:
    """Return the messages of one recording; `group` is an index into `communication.groups`."""
    events, metadata = trace.events, trace.header.metadata
    if metadata is None or not metadata.p2p:
        return Messages.empty()
    operators = events.each_once(events.named(_OPERATORS.__contains__))
    record_of_operator = records_of_operators(trace, operators)
    records = metadata.p2p
    issue_ns = np.array([record.created_ns or 0 for record in records], dtype=np.int64)
    start_ns, end_ns = (np.full(len(records), ABSENT, dtype=np.int64) for _ in range(2))
    has_record = record_of_operator != ABSENT
    event = _events_of(events, operators[has_record], communication)
    joined_records = record_of_operator[has_record]
    issue_ns[joined_records] = events.start_ns[operators[has_record]]
    start_ns[joined_records] = np.where(event == ABSENT, ABSENT, communication.start_ns[event])
    end_ns[joined_records] = np.where(event == ABSENT, ABSENT, communication.end_ns[event])
    window = windows.index_of(issue_ns)
    step = np.where(window >= 0, windows.step[window], ABSENT)
    resolver = GroupResolver(trace.header)
    after, before = _neighbours(events, windows, window, issue_ns)
    order = np.argsort(issue_ns, kind="stable")
    return Messages(
        step=step,
        group=np.array([resolver.by_id(record.group) for record in records], dtype=np.int32),
        peer=np.array([record.peer for record in records], dtype=np.int32),
        tag=np.array([record.tag for record in records], dtype=np.int64),
        is_send=np.array([record.direction == "send" for record in records], dtype=np.bool_),
        issue_ns=issue_ns,
        start_ns=start_ns,
        end_ns=end_ns,
        size_bytes=np.array(
            [ABSENT if record.size_bytes is None else record.size_bytes for record in records], dtype=np.int64
        ),
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


def _events_of(events: EventTable, operators: Int64, communication: CommunicationEvents) -> Int64:
    """Return int64 [o]: the index in `communication` of the event that each operator launched, or ABSENT."""
    result = np.full(len(operators), ABSENT, dtype=np.int64)
    candidates = np.flatnonzero(np.isin(communication.kind, _EVENT_KINDS))
    for track in events.tracks_of(operators):
        track_events = candidates[communication.launch_track[candidates] == track]
        track_events = track_events[np.argsort(communication.launch_ns[track_events], kind="stable")]
        on_track = np.flatnonzero(events.track[operators] == track)
        if not len(track_events):
            continue
        place = np.searchsorted(
            communication.launch_ns[track_events], events.start_ns[operators[on_track]], side="left"
        )
        candidate = track_events[np.minimum(place, len(track_events) - 1)]
        inside = (place < len(track_events)) & (
            communication.launch_ns[candidate] <= events.end_ns[operators[on_track]]
        )
        result[on_track[inside]] = candidate[inside]
    return result


def _neighbours(events: EventTable, windows: StepWindows, window: Int64, time_ns: Int64) -> tuple[Int32, Int32]:
    """Return the kind of the pass in or after which each time falls in its step, and of the pass in or before which:
    int32 [n].

    `window` is the index of the step's window, int64 [n]. ABSENT means that the step has no such pass.
    """
    rows, kind = passes_of(events)
    start_ns, end_ns = events.start_ns[rows], events.end_ns[rows]
    window_of_pass = windows.index_of(start_ns)
    last = np.searchsorted(start_ns, time_ns, side="right") - 1
    inside = (last >= 0) & (time_ns < _at(end_ns, last))
    following = np.where(inside, last, last + 1)
    results = []
    for place in (last, following):
        valid = (place >= 0) & (place < len(rows)) & (window >= 0)
        valid &= np.where(valid, _at(window_of_pass, place), ABSENT) == window
        results.append(np.where(valid, _at(kind, place), ABSENT).astype(np.int32))
    return results[0], results[1]


def _at(values: np.ndarray, place: Int64) -> np.ndarray:
    """Return the values at `place`; any value for places that do not exist."""
    if not len(values):
        return np.full(len(place), ABSENT, dtype=np.int64)
    return np.asarray(values[np.clip(place, 0, len(values) - 1)])
