"""Which `c10d::*` operator issued each span of Gloo or of a similar backend.

Per group and kind Gloo starts operations in the order in which they were issued. The capture notes which group a thread
of Gloo works for.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tracekit.analysis.events.flight_recorder import run_as
from tracekit.analysis.events.shapes import RecordedShapes
from tracekit.model.events import ABSENT, Bool, EventTable, Int64
from tracekit.model.metadata import CaptureMetadata, CollectiveRecord
from tracekit.model.names.collectives import kind_of_collective

POINT_TO_POINT = frozenset({"gloo:send", "gloo:recv"})
_SPAN_PREFIXES = ("gloo:", "mpi:", "ucc:")
_SPAN_A_CHUNK = "c10d::reduce_scatter_"
# This barrier sends and receives on the calling thread, one message per rank.
_MONITORED_BARRIER = "c10d::monitored_barrier_"

__all__ = ["ExpectedSpan", "expected_spans", "is_span", "match_spans", "point_to_point"]


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
