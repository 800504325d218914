"""Communication of a CPU rank: `gloo:*` spans, joined to the operators that issued them.

Comes in: a decoded trace. Goes out: `CommunicationEvents`, and when each operator's communication was in flight. A span
is matched to the earliest unmatched operator of the same kind and shape that began before it (per group and kind, gloo
starts operations in the order of issue). Group, sequence id and sizes come from the flight-recorder entries that
tracekit's capture saved: an entry was created inside its operator.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from dataclasses import dataclass

import numpy as np

from tracekit.analysis.communication_rules import kind_of_collective, size_in_bytes
from tracekit.analysis.groups import GroupResolver
from tracekit.analysis.shapes import RecordedShapes, recorded_shapes
from tracekit.model.communication import KINDS, CommunicationEvents
from tracekit.model.events import ABSENT, Bool, DecodedTrace, EventTable, Int64
from tracekit.model.metadata import CollectiveRecord

__all__ = ["POINT_TO_POINT", "HostCommunication", "host_communication"]

POINT_TO_POINT = frozenset({"gloo:send", "gloo:recv"})
_SPAN_PREFIXES = ("gloo:", "mpi:", "ucc:")
_OPERATOR_PREFIX = "c10d::"
# gloo has no reduce-scatter: it runs an all-reduce of the full input
_GLOO_RUNS = {"reduce_scatter": "all_reduce"}


@dataclass(frozen=True, kw_only=True)
class HostCommunication:
    """`events`, and for each of o `c10d::*` operators (rows int64 [o]) when what it issued was over: int64 [o]."""

    events: CommunicationEvents
    operator_row: Int64
    flight_end_ns: Int64


def is_span(name: str) -> bool:
    return name.startswith(_SPAN_PREFIXES)


def host_communication(trace: DecodedTrace) -> HostCommunication:
    """Find and join the communication of a rank without device events."""
    events = trace.events
    spans = events.each_once(events.named(is_span))
    operators = events.each_once(events.named(lambda name: name.startswith(_OPERATOR_PREFIX)))
    entries = _entry_of_operator(trace, operators)
    shapes = recorded_shapes(events)
    operator_of_span = _match(events, spans, operators, entries, shapes)

    resolver = GroupResolver(trace.header)
    names = [events.strings[i] for i in events.name[spans]]
    kind = np.array([KINDS.index(kind_of_collective(name.partition(":")[2])) for name in names], dtype=np.int32)
    count = len(spans)
    group = np.full(count, ABSENT, dtype=np.int32)
    sequence = np.full(count, ABSENT, dtype=np.int64)
    size_bytes = np.full(count, ABSENT, dtype=np.int64)
    launch_ns = events.start_ns[spans].copy()
    flight_end_ns = events.end_ns[operators].copy()
    only = resolver.only_group()
    for i, position in enumerate(operator_of_span):
        group[i] = ABSENT if only is None else only
        if position != ABSENT:
            operator = operators[position]
            launch_ns[i] = events.start_ns[operator]
            flight_end_ns[position] = max(flight_end_ns[position], events.end_ns[spans[i]])
            issued = kind_of_collective(events.strings[events.name[operator]])
            kind[i] = KINDS.index(issued) if issued != "unknown" else kind[i]
            entry = entries[position]
            if entry is not None:
                group[i] = resolver.by_id(entry.group)
                sequence[i] = entry.seq
                size_bytes[i] = _entry_bytes(entry)
        if size_bytes[i] == ABSENT and (recorded := shapes.get(int(spans[i]))):
            size_bytes[i] = recorded.size_bytes
    found = CommunicationEvents(
        groups=resolver.groups(),
        row=spans.astype(np.int64),
        start_ns=events.start_ns[spans],
        end_ns=events.end_ns[spans],
        kind=kind,
        group=group,
        sequence=sequence,
        size_bytes=size_bytes,
        launch_ns=launch_ns,
        linked=operator_of_span != ABSENT,
    )
    return HostCommunication(events=found, operator_row=operators.astype(np.int64), flight_end_ns=flight_end_ns)


def _entry_of_operator(trace: DecodedTrace, operators: Int64) -> list[CollectiveRecord | None]:
    """For each operator the flight-recorder entry that was created inside it."""
    entries: list[CollectiveRecord | None] = [None] * len(operators)
    metadata = trace.header.metadata
    if metadata is None or not len(operators):
        return entries
    start_ns, end_ns = trace.events.start_ns[operators], trace.events.end_ns[operators]
    for record in metadata.collectives:
        position = int(np.searchsorted(start_ns, record.created_ns, side="right")) - 1
        if position >= 0 and record.created_ns <= end_ns[position] and entries[position] is None:
            entries[position] = record
    return entries


def _match(
    events: EventTable,
    spans: Int64,
    operators: Int64,
    entries: list[CollectiveRecord | None],
    shapes: dict[int, RecordedShapes],
) -> Int64:
    """int64 [spans]: position in `operators` of the one that issued each span, or ABSENT."""
    waiting: dict[str, deque[int]] = defaultdict(deque)
    for position, row in enumerate(operators):
        kind = kind_of_collective(events.strings[events.name[row]])
        waiting[_GLOO_RUNS.get(kind, kind)].append(position)
    result = np.full(len(spans), ABSENT, dtype=np.int64)
    for i, row in enumerate(spans):
        kind = kind_of_collective(events.strings[events.name[row]].partition(":")[2])
        queue = waiting[kind]
        elements = shapes[int(row)].elements if int(row) in shapes else 0
        for position in queue:
            if events.start_ns[operators[position]] > events.start_ns[row]:
                break
            expected = _operator_elements(entries[position], shapes.get(int(operators[position])))
            if not elements or not expected or elements in expected:
                result[i] = position
                queue.remove(position)
                break
    return result


def _operator_elements(entry: CollectiveRecord | None, shapes: RecordedShapes | None) -> set[int]:
    """Element counts that the span of this operator may show: gloo records its input, coalesced or not."""
    tensors = entry.in_shapes if entry is not None else shapes.tensors if shapes is not None else []
    each = [math.prod(dims) for dims in tensors]
    return {sum(each), *each} if each else set()


def _entry_bytes(entry: CollectiveRecord) -> int:
    """The full array: the larger of all inputs and all outputs."""
    elements = max((sum(math.prod(dims) for dims in side) for side in (entry.in_shapes, entry.out_shapes)), default=0)
    return size_in_bytes(elements, entry.dtypes[0]) if entry.dtypes and elements else ABSENT


def point_to_point(events: EventTable) -> Bool:
    """Mask [n]: `gloo:send` and `gloo:recv`, which run from the call to the end of the wait on the calling thread."""
    return events.named(POINT_TO_POINT.__contains__)
