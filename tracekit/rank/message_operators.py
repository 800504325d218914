"""The operators that send and receive, and which kernel does the work of each.

ProcessGroupNCCL records a `record_param_comms` operator for each send and receive. It launches the kernel inside the
operator, except for batches (`batch_isend_irecv`, `_coalescing_manager`): their operators only queue the messages, and
`ncclGroupEnd` launches one kernel for all of them, or a few, when the last operator has ended. Such a kernel names no
collective. An annotation `nccl:coalesced` begins right before it is launched. (torch/csrc/distributed/c10d:
`ProcessGroupNCCL::pointToPoint`, `startCoalescing` and `endCoalescing`.)
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tracekit.model.columnar import Columnar
from tracekit.model.events import ABSENT, Bool, DecodedTrace, EventTable, Int32, Int64
from tracekit.model.metadata import PointToPointRecord
from tracekit.model.spans import COALESCED_SPAN
from tracekit.rank.communication_rules import dtype_index, size_in_bytes
from tracekit.rank.groups import GroupResolver, key_of_recorded_group
from tracekit.rank.shapes import MESSAGE_OPERATORS, peers_and_tags
from tracekit.stats.grouped import grouped

_CALLS = ("c10d::", "_c10d_functional::", "record_param_comms")
_DIRECTIONS = ("send", "recv")
_MESSAGE = re.compile(r"nccl:(?:send \d{1,9}->|recv \d{1,9}<-)(\d{1,9})")


@dataclass(frozen=True, kw_only=True, eq=False)
class MessageOperators(Columnar):
    """n operators that send or receive one message each, in order of time.

    Attributes:
        row: row of the event table, int64 [n].
        is_send: bool [n].
        peer: global rank at the other end, int64 [n], or -1. Torch records it since version 2.5, and that of a message
            outside of a batch in the title of an annotation, too.
        group: index into the resolver's groups, or -1, int32 [n].
        size_bytes: int64 [n], or -1.
        dtype: index into `DTYPES`, or -1, int32 [n].
    """

    row: Int64
    is_send: Bool
    peer: Int64
    group: Int32
    size_bytes: Int64
    dtype: Int32


def message_operators(events: EventTable, resolver: GroupResolver) -> MessageOperators:
    """Return the operators of a trace that say what they send or receive."""
    arguments, strings = events.collective_arguments, events.strings
    directions = {i: text for i, text in enumerate(strings) if text in _DIRECTIONS}
    chosen = np.isin(arguments.collective, list(directions)) & events.in_category("cpu_op")[arguments.row]
    if not chosen.any():
        return MessageOperators.empty()
    position_of_row = dict(zip(arguments.row[chosen].tolist(), np.flatnonzero(chosen).tolist(), strict=True))
    mask = np.zeros(len(events), dtype=np.bool_)
    mask[arguments.row[chosen]] = True
    rows = events.each_once(mask)
    position = np.array([position_of_row[row] for row in rows.tolist()], dtype=np.int64)
    is_send = np.array([directions[c] == "send" for c in arguments.collective[position].tolist()], dtype=np.bool_)

    def text(index: int) -> str:
        return strings[index] if index != ABSENT else ""

    names, descriptions, ranks, dtypes = (
        [text(index) for index in column[position].tolist()]
        for column in (
            arguments.group_name,
            arguments.group_description,
            arguments.group_ranks,
            arguments.dtype,
        )
    )
    elements = np.maximum(arguments.in_elements[position], arguments.out_elements[position]).tolist()
    groups = [resolver.index(*identity) for identity in zip(names, descriptions, ranks, strict=True)]
    peer = np.where(is_send, arguments.destination_rank[position], arguments.source_rank[position])
    unknown = np.flatnonzero(peer == ABSENT)
    members = [*(key.ranks for key in resolver.groups()), ()]
    peer[unknown] = _peers_of_annotations(events, rows[unknown], [members[groups[i]] for i in unknown])
    return MessageOperators(
        row=rows.astype(np.int64),
        is_send=is_send,
        peer=peer,
        group=np.array(groups, dtype=np.int32),
        size_bytes=np.array([size_in_bytes(*pair) for pair in zip(elements, dtypes, strict=True)], dtype=np.int64),
        dtype=np.array([dtype_index(dtype) for dtype in dtypes], dtype=np.int32),
    )


def _peers_of_annotations(events: EventTable, operators: Int64, ranks: Sequence[tuple[int, ...]]) -> Int64:
    """Return int64 [o]: the peer that the annotation inside each operator names, such as `nccl:send 0->1`, or ABSENT.

    It names places in the group. `ranks` are the members of each operator's group, if they are known.
    """
    result = np.full(len(operators), ABSENT, dtype=np.int64)
    for track in events.tracks_of(operators):
        here = np.flatnonzero(events.track[operators] == track)
        titles = events.named(lambda name: _MESSAGE.fullmatch(name) is not None) & (events.track == track)
        titled = np.flatnonzero(titles)
        titled = titled[np.argsort(events.start_ns[titled], kind="stable")]
        following = np.searchsorted(events.start_ns[titled], events.start_ns[operators[here]], side="left")
        for i, place in zip(here.tolist(), following.tolist(), strict=True):
            if place < len(titled) and events.start_ns[titled[place]] <= events.end_ns[operators[i]]:
                match = _MESSAGE.fullmatch(events.strings[events.name[titled[place]]])
                number = int(match[1]) if match is not None else ABSENT
                result[i] = ranks[i][number] if number < len(ranks[i]) else ABSENT
    return result


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
    by_key = grouped(
        (_key_of_record(record, places_in_group.get(record.group, {}), places_known), index)
        for index, record in enumerate(metadata.p2p)
    )
    operators_by_key: dict[tuple[object, ...], list[int]] = {}
    for position, row in enumerate(operators.tolist()):
        direction = MESSAGE_OPERATORS.get(events.strings[events.name[row]])
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


def join_launches(events: EventTable, operators: Int64, launch_ns: Int64, track: Int32) -> tuple[Int64, Int64]:
    """Return which operators and launches belong together: numbers that are equal for those that do, or -1.

    The numbers are int64 [o] for `operators`, rows of the event table in order of time, and int64 [k] for the launches
    of kernels that may send or receive. `launch_ns`, int64 [k], and `track`, int32 [k], are when and on which thread
    each was launched.

    A launch inside an operator belongs to that operator alone. One in a batch that the capture recorded belongs to the
    batch. Any other one belongs to the operators before it on its thread that launched nothing themselves, if no other
    communication was called since.
    """
    of_operator = np.full(len(operators), ABSENT, dtype=np.int64)
    of_launch = np.full(len(launch_ns), ABSENT, dtype=np.int64)
    for thread in events.tracks_of(operators).tolist():
        here = np.flatnonzero(events.track[operators] == thread)
        launches = np.flatnonzero(track == thread)
        launches = launches[np.argsort(launch_ns[launches], kind="stable")]
        numbers = _join_on_thread(events, thread, operators[here], launch_ns[launches])
        for result, which, number in zip((of_operator, of_launch), (here, launches), numbers, strict=True):
            result[which] = np.where(number == ABSENT, ABSENT, here[number])
    return of_operator, of_launch


def _join_on_thread(events: EventTable, thread: int, operators: Int64, launch_ns: Int64) -> tuple[Int64, Int64]:
    """Return `join_launches` for the operators and launches of one thread, both in order of time.

    A number is the position of the operator, or of the last operator of the batch.
    """
    start_ns, end_ns = events.start_ns[operators], events.end_ns[operators]
    place = np.arange(len(operators))
    last = np.searchsorted(start_ns, launch_ns, side="right") - 1
    inside = (last >= 0) & (launch_ns <= end_ns[np.maximum(last, 0)])
    single = np.isin(place, last[inside])
    of_operator, of_launch = np.where(single, place, ABSENT), np.where(inside, last, ABSENT)
    batches = np.flatnonzero(events.named(COALESCED_SPAN.__eq__) & (events.track == thread))
    for batch in batches.tolist():
        single |= _join_batch(events, batch, (start_ns, of_operator), (launch_ns, of_launch))
    outside = np.flatnonzero((last >= 0) & (of_launch == ABSENT) & ~single[np.maximum(last, 0)])
    outside = outside[_ends_a_batch(events, thread, operators, last[outside], launch_ns[outside])]
    if not len(outside):
        return of_operator, of_launch
    of_launch[outside] = last[outside]
    following = np.searchsorted(launch_ns[outside], end_ns, side="left")
    in_batch = ~single & (following < len(outside))
    launch = outside[np.minimum(following, len(outside) - 1)]
    in_batch &= np.maximum.accumulate(np.where(single, place, ABSENT))[last[launch]] < place
    # A second annotation means that the kernel of this batch is missing from the trace, and the next batch's follows.
    named = events.named(lambda name: name.startswith("nccl:") and name.endswith("coalesced"))
    begun_ns = np.sort(events.start_ns[named & (events.track == thread)])
    annotations = np.searchsorted(begun_ns, launch_ns[launch], side="right") - np.searchsorted(begun_ns, end_ns)
    in_batch &= annotations <= 1
    of_operator[in_batch] = last[launch[in_batch]]
    return of_operator, of_launch


def _join_batch(events: EventTable, batch: int, operators: tuple[Int64, Int64], launches: tuple[Int64, Int64]) -> Bool:
    """Complete the numbers of operators and launches inside the span of a batch; return a mask [o] of the operators.

    Both come as times in order and numbers. A number is the position of the batch's last operator.
    """
    (start_ns, of_operator), (launch_ns, of_launch) = operators, launches
    begin_ns, end_ns = events.start_ns[batch], events.end_ns[batch]
    within = (start_ns >= begin_ns) & (start_ns <= end_ns)
    queued = np.flatnonzero(within & (of_operator == ABSENT))
    launched = np.flatnonzero((launch_ns >= begin_ns) & (launch_ns <= end_ns) & (of_launch == ABSENT))
    if len(queued) and len(launched):
        of_operator[queued] = of_launch[launched] = queued[-1]
    return np.asarray(within)


def _ends_a_batch(events: EventTable, thread: int, operators: Int64, last: Int64, launch_ns: Int64) -> Bool:
    """Return a mask [k] of the launches that the end of a batch makes.

    `last`, int64 [k], is the position of the operator before each launch. No other communication is called between the
    two. Of several launches that follow one operator, the first one counts, and those before the next operator begins.
    """
    on_thread = np.flatnonzero((events.track == thread) & events.in_category("cpu_op"))
    on_thread = on_thread[np.argsort(events.start_ns[on_thread], kind="stable")]
    begun_ns = events.start_ns[on_thread]
    calls = events.named(lambda name: name.startswith(_CALLS))[on_thread]
    within = np.searchsorted(events.start_ns[operators], begun_ns, side="right") - 1
    within_operator = (within >= 0) & (begun_ns <= events.end_ns[operators[np.maximum(within, 0)]])
    call_ns = begun_ns[calls & ~within_operator]
    called = np.searchsorted(call_ns, launch_ns) > np.searchsorted(call_ns, events.end_ns[operators[last]])
    begun = np.searchsorted(begun_ns, launch_ns)
    return np.asarray(~called & (begun == begun[np.searchsorted(last, last)]))
