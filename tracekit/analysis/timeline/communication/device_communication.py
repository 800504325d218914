"""Which device events of a GPU rank are communication, and of which kind, group and size.

A rule matches the kernel's name; kind, group and size come from the operator behind the kernel.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracekit.analysis.events.communication_rules import (
    COMPUTE,
    CommunicationRule,
    dtype_index,
    rule_finder,
    size_in_bytes,
)
from tracekit.analysis.events.groups import GroupResolver
from tracekit.analysis.events.innermost_span import innermost_span
from tracekit.analysis.events.kernel_launches import DeviceEvents
from tracekit.analysis.events.shapes import recorded_shapes
from tracekit.analysis.timeline.communication.message_operators import (
    MessageOperators,
    join_launches,
    message_operators,
)
from tracekit.analysis.timeline.communication.unnamed_kernels import (
    EXCHANGES,
    launched_as_peer_copies,
    take_kind_of_next_exchange,
    unclassified,
)
from tracekit.model.communication import KINDS, CommunicationEvents
from tracekit.model.events import ABSENT, Bool, DecodedTrace, EventTable, Int32, Int64
from tracekit.model.names.collectives import kind_of_collective

__all__ = ["MESSAGE_KINDS", "argument_positions", "device_communication"]

_UNKNOWN = KINDS.index("unknown")
_SEND, _RECV, _SEND_RECV = (KINDS.index(kind) for kind in ("send", "recv", "send_recv"))
MESSAGE_KINDS = (_SEND, _RECV, _SEND_RECV, _UNKNOWN)
"""Kinds of kernels that may send or receive messages. RCCL's kernels have one name for all that they do."""
_UNCLASSIFIED, _PEER_COPY_KIND = (KINDS.index(kind) for kind in ("unclassified", "peer_copy"))
_PEER_COPY = re.compile(r"Memcpy PtoP|Peer to Peer")
_OPERATORS = ("c10d::", "_c10d_functional::")
_ANNOTATION = re.compile(r"^(?:nccl|rccl|xccl):(\w+)")


def device_communication(
    trace: DecodedTrace, device: DeviceEvents, rules: Sequence[CommunicationRule]
) -> tuple[CommunicationEvents, Bool]:
    """Return the communication events, and a mask [m] of the device events that are communication."""
    events = trace.events
    name_of_event = events.name[device.row]
    names = _classes_of_names(events, device, rules)
    kind = names.kind[name_of_event]
    undecided = device.is_kernel & ~names.decided[name_of_event]
    looks_alike = unclassified(
        events,
        device,
        undecided,
        communicates=device.is_kernel & (kind != ABSENT),
        computes=names.computes[name_of_event],
    )
    kind[looks_alike] = _UNCLASSIFIED
    kind[launched_as_peer_copies(events, device)] = _PEER_COPY_KIND
    take_kind_of_next_exchange(events, device, kind, names.prepares[name_of_event])
    is_communication = kind != ABSENT
    row = device.row[is_communication]
    kind = kind[is_communication]
    launch_ns, launch_row = device.launch_ns[is_communication], device.launch_row[is_communication]

    resolver = GroupResolver(trace.header)
    arguments = events.collective_arguments
    position = argument_positions(events, row)
    group = np.full(len(row), ABSENT, dtype=np.int32)
    sequence = np.full(len(row), ABSENT, dtype=np.int64)
    size_bytes = np.full(len(row), ABSENT, dtype=np.int64)
    dtypes = np.full(len(row), ABSENT, dtype=np.int32)
    texts = [
        column.tolist()
        for column in (
            arguments.collective,
            arguments.dtype,
            arguments.group_name,
            arguments.group_description,
            arguments.group_ranks,
        )
    ]
    for i in np.flatnonzero(position != ABSENT).tolist():
        p = int(position[i])
        text = [events.strings[column[p]] if column[p] != ABSENT else "" for column in texts]
        collective, dtype, name, description, ranks = text
        if collective:
            named = KINDS.index(kind_of_collective(collective))
            kind[i] = named if named != _UNKNOWN else kind[i]
        group[i] = resolver.index(name, description, ranks)
        sequence[i] = arguments.sequence[p]
        dtypes[i] = dtype_index(dtype)
        size_bytes[i] = size_in_bytes(max(int(arguments.in_elements[p]), int(arguments.out_elements[p])), dtype)
    _complete_from_annotations(events, launch_row, kind, size_bytes, dtypes)
    launch_track = np.where(launch_row != ABSENT, events.track[launch_row], ABSENT).astype(np.int32)
    _complete_from_operators(events, launch_ns, launch_track, kind)
    messages = message_operators(events, resolver)
    unnamed = np.flatnonzero((position == ABSENT) & np.isin(kind, MESSAGE_KINDS))
    if len(messages) and len(unnamed):
        joined = join_launches(events, messages.row, launch_ns[unnamed], launch_track[unnamed])
        _complete_from_messages(messages, *joined, unnamed, (kind, group, size_bytes, dtypes))
    exchange = (group == ABSENT) & np.isin(kind, EXCHANGES)
    if exchange.any() and (experts := resolver.only_group_for("ep")) is not None:
        group[exchange] = experts
    if (group == ABSENT).any() and (only := resolver.only_group()) is not None:
        group[group == ABSENT] = only
    communication = CommunicationEvents(
        groups=resolver.groups(),
        row=row,
        start_ns=events.start_ns[row],
        end_ns=events.end_ns[row],
        kind=kind,
        group=group,
        sequence=sequence,
        size_bytes=size_bytes,
        dtype=dtypes,
        launch_ns=launch_ns,
        launch_track=launch_track,
        linked=position != ABSENT,
    )
    return communication, is_communication


@dataclass(frozen=True, kw_only=True, eq=False)
class _NameClasses:
    """What the rules say of each of s names of kernels and copies.

    Attributes:
        kind: of communication, or ABSENT, int32 [s].
        decided: a rule is for it, bool [s].
        computes: one of tracekit's rules says that it is no communication, bool [s].
        prepares: it belongs to what follows on its stream (`CommunicationRule.prepares`), bool [s].
    """

    kind: Int32
    decided: Bool
    computes: Bool
    prepares: Bool


def _classes_of_names(events: EventTable, device: DeviceEvents, rules: Sequence[CommunicationRule]) -> _NameClasses:
    """Return what the rules say of the names of these device events. Each name is matched once."""
    kind = np.full(len(events.strings), ABSENT, dtype=np.int32)
    decided, computes, prepares = np.zeros((3, len(events.strings)), dtype=np.bool_)
    rule_for = rule_finder(tuple(rules))
    for name in _names(events, device.row[device.is_kernel]):
        text = events.strings[name]
        rule = rule_for(text)
        if rule is None:
            continue
        named = rule.kind_of(text)
        kind[name] = ABSENT if named == COMPUTE else KINDS.index(named)
        # A user's rule is about a kernel, not about the others of its stream.
        decided[name], computes[name], prepares[name] = True, named == COMPUTE and bool(rule.source), rule.prepares
    for name in _names(events, device.row[~device.is_kernel]):
        if _PEER_COPY.search(events.strings[name]):
            kind[name] = _PEER_COPY_KIND
    return _NameClasses(kind=kind, decided=decided, computes=computes, prepares=prepares)


def _names(events: EventTable, rows: Int64) -> Int64:
    """Return the distinct names of some events."""
    return np.flatnonzero(np.bincount(events.name[rows] + 1)[1:])


def argument_positions(events: EventTable, row: Int64) -> Int64:
    """Return int64 [k]: the position of each kernel's collective arguments, or ABSENT.

    They are recorded with the kernel itself, or with its `record_param_comms` operator.
    """
    arguments = events.collective_arguments
    with_collective = np.flatnonzero(arguments.collective != ABSENT)
    operator = arguments.row[with_collective]
    position_of_event = dict(zip(operator.tolist(), with_collective.tolist(), strict=True))
    position_of_operator = dict(zip(events.external_id[operator].tolist(), with_collective.tolist(), strict=True))
    position_of_operator.pop(ABSENT, None)
    positions = (
        position_of_event.get(r, position_of_operator.get(e, ABSENT))
        for r, e in zip(row.tolist(), events.external_id[row].tolist(), strict=True)
    )
    return np.fromiter(positions, dtype=np.int64, count=len(row))


def _complete_from_annotations(
    events: EventTable, launch_row: Int64, kind: Int32, size_bytes: Int64, dtypes: Int32
) -> None:
    """Fill in what is missing from the `nccl:<kind>` annotation around each launch.

    That is the kind of a kernel that is named only SendRecv or Generic, and a size and data type that no argument
    gives.
    """
    annotation = _annotation_of_launch(events, launch_row)
    unnamed, unsized = np.isin(kind, (_SEND_RECV, _UNKNOWN)), size_bytes == ABSENT
    incomplete = np.flatnonzero((annotation != ABSENT) & (unnamed | unsized))
    shapes = recorded_shapes(events) if len(incomplete) else {}
    for i in incomplete.tolist():
        match = _ANNOTATION.match(events.strings[events.name[annotation[i]]])
        assert match is not None
        named = KINDS.index(kind_of_collective(match.group(1)))
        if unnamed[i] and named != _UNKNOWN:
            kind[i] = named
        if unsized[i] and int(annotation[i]) in shapes:
            size_bytes[i] = shapes[int(annotation[i])].size_bytes
            dtypes[i] = dtype_index(shapes[int(annotation[i])].dtype)


def _complete_from_operators(events: EventTable, launch_ns: Int64, launch_track: Int32, kind: Int32) -> None:
    """Fill in the kind of a kernel that is named only SendRecv or Generic, from the c10d operator around its launch."""
    unnamed = np.flatnonzero(np.isin(kind, (_SEND_RECV, _UNKNOWN)) & (launch_track != ABSENT))
    if not len(unnamed):
        return
    operators = np.flatnonzero(events.named(lambda name: name.startswith(_OPERATORS)))
    operator = innermost_span(events, operators, launch_track[unnamed].astype(np.int64), launch_ns[unnamed])
    for i, row in zip(unnamed.tolist(), operator.tolist(), strict=True):
        named = KINDS.index(kind_of_collective(events.strings[events.name[row]])) if row != ABSENT else _UNKNOWN
        kind[i] = named if named != _UNKNOWN else kind[i]


def _complete_from_messages(
    messages: MessageOperators,
    of_message: Int64,
    of_kernel: Int64,
    kernels: Int64,
    columns: tuple[Int32, Int32, Int64, Int32],
) -> None:
    """Fill in kind, group, size and data type of `kernels`, int64 [k], that run one or several of the n messages.

    `of_message`, int64 [n], and `of_kernel`, int64 [k], are the numbers of `join_launches`. The size is that of all
    messages of the kernel together.
    """
    kind, group, size_bytes, dtypes = columns
    kernels, number = kernels[of_kernel != ABSENT], of_kernel[of_kernel != ABSENT]
    known = of_message != ABSENT
    sums = (
        np.bincount(of_message[known], weights=values[known], minlength=len(messages)).astype(np.int64)[number]
        for values in (messages.is_send, ~messages.is_send, messages.size_bytes, messages.size_bytes == ABSENT)
    )
    sends, receives, total_bytes, unsized = sums
    kind[kernels] = np.where(receives == 0, _SEND, np.where(sends == 0, _RECV, _SEND_RECV))
    group[kernels], dtypes[kernels] = messages.group[number], messages.dtype[number]
    size_bytes[kernels] = np.where(unsized > 0, ABSENT, total_bytes)


def _annotation_of_launch(events: EventTable, launch_row: Int64) -> Int64:
    """Return int64 [k]: the row of the `nccl:<kind>` annotation around each launch on its thread, or ABSENT."""
    result = np.full(len(launch_row), ABSENT, dtype=np.int64)
    annotations = np.flatnonzero(events.named(lambda name: _ANNOTATION.match(name) is not None))
    annotations = annotations[np.argsort(events.start_ns[annotations], kind="stable")]
    for track in events.tracks_of(annotations):
        on_track = annotations[events.track[annotations] == track]
        launches = np.flatnonzero((launch_row != ABSENT) & (events.track[launch_row] == track))
        start_ns = events.start_ns[launch_row[launches]]
        preceding = np.searchsorted(events.start_ns[on_track], start_ns, side="right") - 1
        is_inside = (preceding >= 0) & (events.end_ns[on_track[np.maximum(preceding, 0)]] >= start_ns)
        result[launches[is_inside]] = on_track[preceding[is_inside]]
    return result
