"""Communication of a CPU rank: `gloo:*` spans, joined to the operators that issued them.

Comes in: a decoded trace. Goes out: `CommunicationEvents`, and when each operator's communication was in flight. A span
is matched to the earliest unmatched operator of the same kind and shape that began before it (per group and kind, gloo
starts operations in the order of issue). Group, sequence id and sizes come from the flight-recorder entries that
tracekit's capture saved: an entry was created inside its operator. An operator with several entries (a reduce-scatter
of a list runs an all-reduce for each chunk) has as many spans, and all of them are one collective.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracekit.analysis.communication_rules import bytes_per_element, kind_of_collective, size_in_bytes
from tracekit.analysis.groups import GroupResolver
from tracekit.analysis.shapes import RecordedShapes, peers_in_group, recorded_shapes
from tracekit.model.communication import KINDS, CommunicationEvents
from tracekit.model.events import ABSENT, Bool, DecodedTrace, EventTable, Int64
from tracekit.model.metadata import CollectiveRecord

__all__ = ["POINT_TO_POINT", "HostCommunication", "host_communication"]

POINT_TO_POINT = frozenset({"gloo:send", "gloo:recv"})
_SPAN_PREFIXES = ("gloo:", "mpi:", "ucc:")
_OPERATOR_PREFIX = "c10d::"
# gloo has no reduce-scatter: it runs an all-reduce of the full input
_GLOO_RUNS = {"reduce_scatter": "all_reduce"}
_SPAN_A_CHUNK = "c10d::reduce_scatter_"


@dataclass(frozen=True, kw_only=True)
class HostCommunication:
    """`events`; counted: bool [n], False for the second and further spans of one collective; and for each of o
    `c10d::*` operators (rows int64 [o]) when what it issued was over: int64 [o].
    """

    events: CommunicationEvents
    counted: Bool
    operator_row: Int64
    flight_end_ns: Int64


@dataclass(frozen=True)
class _Issue:
    """A span that an operator (by its position) is to have, and the element counts it may show; any, if empty."""

    position: int
    elements: frozenset[int]


class Queue(deque[int]):
    """Numbers of issues in order of time, of which another queue may have taken some."""

    def first(self, taken: bytearray) -> int | None:
        while self and taken[self[0]]:
            self.popleft()
        return self[0] if self else None


def is_span(name: str) -> bool:
    return name.startswith(_SPAN_PREFIXES)


def host_communication(trace: DecodedTrace) -> HostCommunication:
    """Find and join the communication of a rank without device events."""
    events = trace.events
    spans = events.each_once(events.named(is_span))
    operators = events.each_once(events.named(lambda name: name.startswith(_OPERATOR_PREFIX)))
    entries = _entries_of_operators(trace, operators)
    shapes, peers = recorded_shapes(events), peers_in_group(events)
    resolver = GroupResolver(trace.header)
    only = ABSENT if (index := resolver.only_group()) is None else index
    issues = _issues(events, operators, entries, shapes, resolver.members(only))
    issue_of_span = _match(events, spans, operators, issues, shapes)

    count = len(spans)
    kind = np.zeros(count, dtype=np.int32)
    group = np.full(count, only, dtype=np.int32)
    sequence = np.full(count, ABSENT, dtype=np.int64)
    size_bytes = np.full(count, ABSENT, dtype=np.int64)
    launch_ns = events.start_ns[spans].copy()
    launch_track = np.full(count, ABSENT, dtype=np.int32)
    flight_end_ns = events.end_ns[operators].copy()
    counted = np.ones(count, dtype=np.bool_)
    for position, here in _spans_of_operators(issues, issue_of_span):
        name = events.strings[events.name[spans[here[0]]]]
        named = kind_of_collective(name.partition(":")[2])
        issued_by, entries_here = None, entries[position] if position != ABSENT else []
        if position != ABSENT:
            operator = int(operators[position])
            launch_ns[here] = events.start_ns[operator]
            launch_track[here] = events.track[operator]
            flight_end_ns[position] = max(flight_end_ns[position], events.end_ns[spans[here]].max())
            issued = kind_of_collective(events.strings[events.name[operator]])
            named = issued if issued != "unknown" else named
            issued_by = shapes.get(operator)
            if entries_here:
                group[here] = resolver.by_id(entries_here[0].group)
                sequence[here] = entries_here[0].seq
            elif only == ABSENT and operator in peers:
                group[here] = resolver.with_peer(peers[operator])
            counted[here[1:]] = False
        kind[here] = KINDS.index(named)
        recorded = [shapes[row] for row in spans[here].tolist() if row in shapes]
        members = resolver.members(int(group[here[0]]))
        size_bytes[here] = _full_bytes(named, entries_here, issued_by, recorded, members)
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
        launch_track=launch_track,
        linked=issue_of_span != ABSENT,
    )
    return HostCommunication(
        events=found, counted=counted, operator_row=operators.astype(np.int64), flight_end_ns=flight_end_ns
    )


def _spans_of_operators(issues: Sequence[_Issue], issue_of_span: Int64) -> list[tuple[int, Int64]]:
    """The spans of each operator that has any, as positions int64 [k]; a span of no operator alone, with ABSENT."""
    alone = [(ABSENT, np.array([i], dtype=np.int64)) for i in np.flatnonzero(issue_of_span == ABSENT)]
    together: dict[int, list[int]] = defaultdict(list)
    for i in np.flatnonzero(issue_of_span != ABSENT).tolist():
        together[issues[issue_of_span[i]].position].append(i)
    return alone + [(position, np.array(spans, dtype=np.int64)) for position, spans in together.items()]


def _entries_of_operators(trace: DecodedTrace, operators: Int64) -> list[list[CollectiveRecord]]:
    """For each operator the flight-recorder entries that were created inside it, in order of time.

    Of operators that run at once on several threads, it is the last to have begun that is of the entry's kind.
    """
    events, metadata = trace.events, trace.header.metadata
    entries: list[list[CollectiveRecord]] = [[] for _ in operators]
    if metadata is None:
        return entries
    start_ns, end_ns = events.start_ns[operators].tolist(), events.end_ns[operators].tolist()
    kinds = [_run_as(kind_of_collective(events.strings[name])) for name in events.name[operators]]
    running: list[int] = []
    begun = 0
    for record in sorted(metadata.collectives, key=lambda record: record.created_ns):
        while begun < len(operators) and start_ns[begun] <= record.created_ns:
            running.append(begun)
            begun += 1
        running = [position for position in running if end_ns[position] >= record.created_ns]
        of_its_kind = [position for position in running if kinds[position] == _run_as(record.kind)]
        if running:
            entries[(of_its_kind or running)[-1]].append(record)
    return entries


def _run_as(kind: str) -> str:
    return _GLOO_RUNS.get(kind, kind)


def _issues(
    events: EventTable,
    operators: Int64,
    entries: list[list[CollectiveRecord]],
    shapes: dict[int, RecordedShapes],
    members: int | None,
) -> list[_Issue]:
    """The spans to expect, in order of their operators: one an entry; without entries one an operator, but one a rank
    of the group for a reduce-scatter of a list. `members`: of the only group, if there is one.
    """
    issues = []
    for position, row in enumerate(operators.tolist()):
        name = events.strings[events.name[row]]
        issues += [_Issue(position, _may_show(record.in_shapes)) for record in entries[position]]
        if not entries[position]:
            known = shapes.get(row)
            elements: frozenset[int] = frozenset()
            # of a scatter the operator shows what this rank gets, the span of the root what all get
            if known is not None and kind_of_collective(name) != "scatter":
                elements = _may_show(known.tensors) | frozenset(known.elements_of_arguments) - {0}
            issues += [_Issue(position, elements)] * ((members or 1) if name == _SPAN_A_CHUNK else 1)
    return issues


def _may_show(tensors: list[list[int]]) -> frozenset[int]:
    """Element counts that a span may show: gloo records its input, coalesced or not."""
    each = [math.prod(dims) for dims in tensors]
    return frozenset((sum(each), *each)) if each else frozenset()


def _match(
    events: EventTable, spans: Int64, operators: Int64, issues: Sequence[_Issue], shapes: dict[int, RecordedShapes]
) -> Int64:
    """int64 [spans]: the number in `issues` of each span, or ABSENT. Every issue stands in a queue for each count of
    elements it may show, so that a span looks at the heads of two queues only.
    """
    everything: dict[str, Queue] = defaultdict(Queue)
    of_elements: dict[tuple[str, int], Queue] = defaultdict(Queue)
    of_any_shape: dict[str, Queue] = defaultdict(Queue)
    start_ns = events.start_ns[operators].tolist()
    for number, issue in enumerate(issues):
        kind = _run_as(kind_of_collective(events.strings[events.name[operators[issue.position]]]))
        everything[kind].append(number)
        for queue in [of_elements[kind, n] for n in issue.elements] or [of_any_shape[kind]]:
            queue.append(number)
    taken = bytearray(len(issues))
    result = np.full(len(spans), ABSENT, dtype=np.int64)
    for i, row in enumerate(spans.tolist()):
        kind = _run_as(kind_of_collective(events.strings[events.name[row]].partition(":")[2]))
        elements = shapes[row].elements if row in shapes else 0
        queues = [of_elements[kind, elements], of_any_shape[kind]] if elements else [everything[kind]]
        number = min((n for queue in queues if (n := queue.first(taken)) is not None), default=ABSENT)
        if number != ABSENT and start_ns[issues[number].position] <= events.start_ns[row]:
            taken[number] = 1
            result[i] = number
    return result


def _full_bytes(
    kind: str,
    entries: list[CollectiveRecord],
    operator: RecordedShapes | None,
    spans: list[RecordedShapes],
    members: int | None,
) -> int:
    """Bytes of the full array, or ABSENT: the most elements that the entries, one argument of the operator or the spans
    show. Where all of them show this rank's shard alone, it is as many times that as the group has members.
    """
    dtypes = [
        *(t for record in entries for t in record.dtypes),
        *(s.dtype for s in (operator, *spans) if s is not None),
    ]
    dtype = next((t for t in dtypes if bytes_per_element(t)), None)
    if kind == "barrier" or dtype is None:
        return ABSENT
    given = sum(math.prod(dims) for record in entries for dims in record.in_shapes)
    made = sum(math.prod(dims) for record in entries for dims in record.out_shapes)
    shown = sum(span.elements for span in spans)
    arguments = operator.elements_of_arguments if operator is not None else []
    elements = max(given, made, shown, *arguments, 0)
    shard = 0
    if kind in {"all_gather", "gather"}:  # gloo records its input
        shard = max(given, shown)
    elif kind in {"scatter", "reduce_scatter"} and arguments:  # the output comes first
        shard = arguments[0]
    if 0 < elements <= shard:
        elements = shard * (members or 0)
    return size_in_bytes(elements, dtype) if elements > 0 else ABSENT


def point_to_point(events: EventTable) -> Bool:
    """Mask [n]: `gloo:send` and `gloo:recv`, which run from the call to the end of the wait on the calling thread."""
    return events.named(POINT_TO_POINT.__contains__)
