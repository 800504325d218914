"""Which `c10d::*` operator issued each `gloo:*` span of a CPU rank, or each span of a similar backend.

A span is matched to the earliest unmatched operator of its kind and shape that began before it: per group and kind,
Gloo starts operations in the order of issue. Group, sequence id and sizes come from the flight-recorder entries that
the capture saved; an entry was created inside its operator.

An operator may have several entries: a reduce-scatter of a list runs an all-reduce per chunk. It then has as many
spans, and all of them are one collective.

The capture notes which group a thread of Gloo works for.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tracekit.model.communication import KINDS, CommunicationEvents, FlightRecorderMatch
from tracekit.model.events import ABSENT, Bool, DecodedTrace, EventTable, Int64
from tracekit.model.metadata import CaptureMetadata, CollectiveRecord
from tracekit.model.names.collectives import kind_of_collective
from tracekit.rank.communication_rules import (
    bytes_per_element,
    dtype_index,
    size_in_bytes,
)
from tracekit.rank.flight_recorder import entries_of_operators, match_flight_recorder, run_as
from tracekit.rank.groups import GroupResolver
from tracekit.rank.message_operators import message_of_operator, records_of_operators
from tracekit.rank.shapes import RecordedShapes, peers_in_group, recorded_shapes
from tracekit.stats.grouped import grouped

_OPERATOR_PREFIX = "c10d::"

POINT_TO_POINT = frozenset({"gloo:send", "gloo:recv"})
_SPAN_PREFIXES = ("gloo:", "mpi:", "ucc:")
_SPAN_A_CHUNK = "c10d::reduce_scatter_"
# This barrier sends and receives on the calling thread, one message per rank.
_MONITORED_BARRIER = "c10d::monitored_barrier_"


@dataclass(frozen=True, kw_only=True, eq=False)
class HostCommunication:
    """The communication of a rank without device events.

    Attributes:
        events: n events.
        counted: False for the second and further spans of one collective, bool [n].
        operator_row: rows of the `c10d::*` operators, int64 [o].
        flight_end_ns: when what each operator issued was over, int64 [o].
        flight_recorder: which of the flight recorder's entries have an operator and a span.
    """

    events: CommunicationEvents
    counted: Bool
    operator_row: Int64
    flight_end_ns: Int64
    flight_recorder: FlightRecorderMatch


def host_communication(trace: DecodedTrace) -> HostCommunication:
    """Return the communication of a rank without device events."""
    events = trace.events
    spans = events.each_once(events.named(is_span))
    operators = events.each_once(events.named(lambda name: name.startswith(_OPERATOR_PREFIX)))
    flight_entries = entries_of_operators(trace, operators)
    entries = flight_entries.of_operator
    shapes, peers = recorded_shapes(events), peers_in_group(events)
    resolver = GroupResolver(trace.header)
    only = ABSENT if (index := resolver.only_group()) is None else index
    messages = records_of_operators(trace, operators)
    expected = expected_spans(events, operators, entries, shapes, resolver.members(only))
    expected_of_span = match_spans(events, spans, operators, expected, shapes, trace.header.metadata)
    spans_of_operators = _spans_of_operators(expected, expected_of_span)

    count = len(spans)
    kind = np.zeros(count, dtype=np.int32)
    group = np.full(count, only, dtype=np.int32)
    sequence = np.full(count, ABSENT, dtype=np.int64)
    size_bytes = np.full(count, ABSENT, dtype=np.int64)
    dtypes = np.full(count, ABSENT, dtype=np.int32)
    launch_ns = events.start_ns[spans].copy()
    launch_track = np.full(count, ABSENT, dtype=np.int32)
    flight_end_ns = events.end_ns[operators].copy()
    counted = np.ones(count, dtype=np.bool_)
    for position, positions in spans_of_operators:
        name = events.strings[events.name[spans[positions[0]]]]
        named = kind_of_collective(name.partition(":")[2])
        issued_by, entries_here = None, entries[position] if position != ABSENT else []
        if position != ABSENT:
            operator = int(operators[position])
            launch_ns[positions] = events.start_ns[operator]
            launch_track[positions] = events.track[operator]
            flight_end_ns[position] = max(flight_end_ns[position], events.end_ns[spans[positions]].max())
            operator_kind = kind_of_collective(events.strings[events.name[operator]])
            named = operator_kind if operator_kind != "unknown" else named
            issued_by = shapes.get(operator)
            if entries_here:
                group[positions] = resolver.by_id(entries_here[0].group)
                sequence[positions] = entries_here[0].seq
            elif (message := message_of_operator(trace, messages[position])) is not None:
                group[positions] = resolver.by_id(message.group)
            elif only == ABSENT and operator in peers:
                group[positions] = resolver.with_peer(peers[operator])
            counted[positions[1:]] = False
        kind[positions] = KINDS.index(named)
        recorded = [shapes[row] for row in spans[positions].tolist() if row in shapes]
        members = resolver.members(int(group[positions[0]]))
        dtype = _data_type(entries_here, issued_by, recorded)
        dtypes[positions] = dtype_index(dtype)
        size_bytes[positions] = _full_bytes(named, dtype, entries_here, issued_by, recorded, members)
    communication = CommunicationEvents(
        groups=resolver.groups(),
        row=spans.astype(np.int64),
        start_ns=events.start_ns[spans],
        end_ns=events.end_ns[spans],
        kind=kind,
        group=group,
        sequence=sequence,
        size_bytes=size_bytes,
        dtype=dtypes,
        launch_ns=launch_ns,
        launch_track=launch_track,
        linked=expected_of_span != ABSENT,
    )
    return HostCommunication(
        events=communication,
        counted=counted,
        operator_row=operators.astype(np.int64),
        flight_end_ns=flight_end_ns,
        flight_recorder=match_flight_recorder(
            flight_entries, {position: len(positions) for position, positions in spans_of_operators}
        ),
    )


def _spans_of_operators(expected: Sequence[ExpectedSpan], expected_of_span: Int64) -> list[tuple[int, Int64]]:
    """Return the spans of each operator that has any, as positions int64 [k].

    A span without operator stands alone, with ABSENT.
    """
    alone = [(ABSENT, np.array([i], dtype=np.int64)) for i in np.flatnonzero(expected_of_span == ABSENT)]
    spans_of = np.flatnonzero(expected_of_span != ABSENT).tolist()
    by_operator = grouped((expected[expected_of_span[i]].position, i) for i in spans_of)
    return alone + [(position, np.array(spans, dtype=np.int64)) for position, spans in by_operator.items()]


def _data_type(entries: list[CollectiveRecord], operator: RecordedShapes | None, spans: list[RecordedShapes]) -> str:
    """Return the first known data type that the entries, the operator and the spans name; "" without any."""
    dtypes = [
        *(t for record in entries for t in record.dtypes),
        *(s.dtype for s in (operator, *spans) if s is not None),
    ]
    return next((t for t in dtypes if bytes_per_element(t)), "")


def _full_bytes(
    kind: str,
    dtype: str,
    entries: list[CollectiveRecord],
    operator: RecordedShapes | None,
    spans: list[RecordedShapes],
    members: int | None,
) -> int:
    """Return the bytes of the full array, or ABSENT.

    It has the most elements that the entries, one argument of the operator or the spans show. Where all of them show
    only this rank's shard, that is multiplied by the number of the group's members.
    """
    if kind == "barrier" or not dtype:
        return ABSENT
    input_elements = sum(math.prod(dims) for record in entries for dims in record.in_shapes)
    output_elements = sum(math.prod(dims) for record in entries for dims in record.out_shapes)
    span_elements = sum(span.elements for span in spans)
    arguments = operator.elements_of_arguments if operator is not None else []
    elements = max(input_elements, output_elements, span_elements, *arguments, 0)
    shard = 0
    if kind in {"all_gather", "gather"}:  # gloo records its input
        shard = max(input_elements, span_elements)
    elif kind in {"scatter", "reduce_scatter"} and arguments:  # the output comes first
        shard = arguments[0]
    if 0 < elements <= shard:
        elements = shard * (members or 0)
    return size_in_bytes(elements, dtype) if elements > 0 else ABSENT


@dataclass(frozen=True)
class ExpectedSpan:
    """A span that an operator should have.

    Attributes:
        position: of the operator.
        elements: element counts that the span may show; empty if any count is possible.
        group: its id in the metadata; None where only the operator is known.
    """

    position: int
    elements: frozenset[int]
    group: int | None = None


class Queue(deque[int]):
    """Indexes of expected spans in order of time. Another queue may have taken some of them."""

    def first(self, taken: bytearray) -> int | None:
        """Return the first index that is not taken; None without any."""
        while self and taken[self[0]]:
            self.popleft()
        return self[0] if self else None


def is_span(name: str) -> bool:
    return name.startswith(_SPAN_PREFIXES)


def point_to_point(events: EventTable) -> Bool:
    """Return a mask [n] of `gloo:send` and `gloo:recv`, which run on the calling thread until the end of the wait."""
    return events.named(POINT_TO_POINT.__contains__)


def expected_spans(
    events: EventTable,
    operators: Int64,
    entries: Sequence[Sequence[CollectiveRecord]],
    shapes: Mapping[int, RecordedShapes],
    members: int | None,
) -> list[ExpectedSpan]:
    """Return the spans to expect, in the order of their operators.

    An operator has one span per flight-recorder entry. Without entries it has one, but a reduce-scatter of a list has
    one per rank of the group. `members` is the size of the only group, if there is just one.
    """
    expected = []
    for position, row in enumerate(operators.tolist()):
        name = events.strings[events.name[row]]
        expected += [ExpectedSpan(position, _may_show(record.in_shapes), record.group) for record in entries[position]]
        if not entries[position]:
            recorded = shapes.get(row)
            elements: frozenset[int] = frozenset()
            # a scatter's operator shows what this rank receives, the root's span what all receive
            if recorded is not None and kind_of_collective(name) != "scatter":
                elements = _may_show(recorded.tensors) | frozenset(recorded.elements_of_arguments) - {0}
            expected += [ExpectedSpan(position, elements)] * ((members or 1) if name == _SPAN_A_CHUNK else 1)
    return expected


def _may_show(tensors: list[list[int]]) -> frozenset[int]:
    """Return the element counts that a span may show: Gloo records its input, coalesced or not."""
    counts = [math.prod(dims) for dims in tensors]
    return frozenset((sum(counts), *counts)) if counts else frozenset()


def match_spans(
    events: EventTable,
    spans: Int64,
    operators: Int64,
    expected: Sequence[ExpectedSpan],
    shapes: Mapping[int, RecordedShapes],
    metadata: CaptureMetadata | None,
) -> Int64:
    """Return int64 [spans]: the index in `expected` of each span, or ABSENT.

    Every expected span is in one queue per element count that it may show. So a span looks at the heads of a few queues
    only. A span that the flight recorder lists is preferred over one that is only expected: an operator that raised has
    no entry and leaves no span.
    """
    group_of_track = _groups_of_tracks(events, metadata)
    queues: dict[tuple[object, ...], Queue] = defaultdict(Queue)
    start_ns = events.start_ns[operators].tolist()
    for number, span_expected in enumerate(expected):
        name = events.strings[events.name[operators[span_expected.position]]]
        kind = run_as(kind_of_collective(name))
        if name == _MONITORED_BARRIER:
            continue
        # A span of unknown group may be of any group.
        for group in {span_expected.group, ABSENT if span_expected.group is not None else None}:
            queues[group, kind].append(number)
            for elements in span_expected.elements or {0}:
                queues[group, kind, elements].append(number)
    taken = bytearray(len(expected))
    result = np.full(len(spans), ABSENT, dtype=np.int64)
    in_barrier = _within_monitored_barriers(events, spans, operators)
    number_of_position = {span_expected.position: number for number, span_expected in enumerate(expected)}
    for i, row in enumerate(spans.tolist()):
        if in_barrier[i] != ABSENT:
            result[i] = number_of_position[int(in_barrier[i])]
            continue
        kind = run_as(kind_of_collective(events.strings[events.name[row]].partition(":")[2]))
        elements = shapes[row].elements if row in shapes else 0
        for group in (group_of_track.get(int(events.track[row]), ABSENT), None):
            keys: list[tuple[object, ...]] = [(group, kind)]
            if elements:
                keys = [(group, kind, elements), (group, kind, 0)]
            number = min((n for key in keys if (n := queues[key].first(taken)) is not None), default=ABSENT)
            if number != ABSENT and start_ns[expected[number].position] <= events.start_ns[row]:
                taken[number] = 1
                result[i] = number
                break
    return result


def _groups_of_tracks(events: EventTable, metadata: CaptureMetadata | None) -> dict[int, int]:
    """Return the group, by its id in the metadata, of each track of Gloo, as far as the capture noted it."""
    if metadata is None:
        return {}
    group_of_thread = {thread: group.id for group in metadata.groups for thread in group.threads}
    tracks = enumerate(events.tracks)
    return {i: group_of_thread[t.tid] for i, t in tracks if isinstance(t.tid, int) and t.tid in group_of_thread}


def _within_monitored_barriers(events: EventTable, spans: Int64, operators: Int64) -> Int64:
    """Return int64 [spans]: the position of the monitored barrier that each message belongs to, or ABSENT."""
    result = np.full(len(spans), ABSENT, dtype=np.int64)
    barriers = np.flatnonzero(events.named(_MONITORED_BARRIER.__eq__)[operators])
    messages = point_to_point(events)[spans]
    for position in barriers.tolist():
        row = operators[position]
        inside = (
            messages
            & (events.track[spans] == events.track[row])
            & (events.start_ns[spans] >= events.start_ns[row])
            & (events.start_ns[spans] <= events.end_ns[row])
        )
        result[inside] = position
    return result
