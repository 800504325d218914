"""Communication of a CPU rank: `gloo:*` spans, matched to the operators that issued them.

A span is matched to the earliest unmatched operator of its kind and shape that began before it: per group and kind,
Gloo starts operations in the order of issue. Group, sequence id and sizes come from the flight-recorder entries that
the capture saved; an entry was created inside its operator.

An operator may have several entries: a reduce-scatter of a list runs an all-reduce per chunk. It then has as many
spans, and all of them are one collective.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracekit.analysis.events.communication_rules import (
    bytes_per_element,
    dtype_index,
    size_in_bytes,
)
from tracekit.analysis.events.flight_recorder import entries_of_operators, match_flight_recorder
from tracekit.analysis.events.groups import GroupResolver
from tracekit.analysis.events.shapes import RecordedShapes, peers_in_group, recorded_shapes
from tracekit.analysis.timeline.communication.gloo_spans import ExpectedSpan, expected_spans, is_span, match_spans
from tracekit.analysis.timeline.communication.message_operators import message_of_operator, records_of_operators
from tracekit.model.communication import KINDS, CommunicationEvents, FlightRecorderMatch
from tracekit.model.events import ABSENT, Bool, DecodedTrace, Int64
from tracekit.model.metadata import CollectiveRecord
from tracekit.model.names.collectives import kind_of_collective

__all__ = ["HostCommunication", "host_communication"]

_OPERATOR_PREFIX = "c10d::"


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
    by_operator: dict[int, list[int]] = defaultdict(list)
    for i in np.flatnonzero(expected_of_span != ABSENT).tolist():
        by_operator[expected[expected_of_span[i]].position].append(i)
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
