"""Which device events of a GPU rank are communication, and of which kind, group and size.

A rule matches the kernel's name; kind, group and size come from the operator behind the kernel.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from tracekit.analysis.events.communication_rules import (
    CommunicationRule,
    dtype_index,
    kind_of_collective,
    kind_of_kernel,
    size_in_bytes,
)
from tracekit.analysis.events.groups import GroupResolver
from tracekit.analysis.events.kernel_launches import DeviceEvents
from tracekit.analysis.events.shapes import recorded_shapes
from tracekit.model.communication import KINDS, CommunicationEvents
from tracekit.model.events import ABSENT, Bool, DecodedTrace, EventTable, Int32, Int64
from tracekit.model.intervals import Intervals

__all__ = ["argument_positions", "device_communication"]

_UNKNOWN = KINDS.index("unknown")
_SEND_RECV = KINDS.index("send_recv")
_UNCLASSIFIED = KINDS.index("unclassified")
_PEER_COPY = re.compile(r"Memcpy PtoP|Peer to Peer")
_ANNOTATION = re.compile(r"^(?:nccl|rccl|xccl):(\w+)")
_ISSUES_COLLECTIVE = re.compile(r"^(?:c10d::|_c10d_functional::(?!wait_tensor)|record_param_comms$)")


def device_communication(
    trace: DecodedTrace, device: DeviceEvents, rules: Sequence[CommunicationRule]
) -> tuple[CommunicationEvents, Bool]:
    """Return the communication events, and a mask [m] of the device events that are communication."""
    events = trace.events
    kind_of_name = _kinds_of_names(events, device, rules)
    kind = kind_of_name[events.name[device.row]]
    undecided = (kind == ABSENT) & device.is_kernel
    kind[_unclassified(events, device, undecided)] = _UNCLASSIFIED
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
    for i in np.flatnonzero(position != ABSENT):
        p = position[i]
        text = [
            events.strings[c[p]] if c[p] != ABSENT else ""
            for c in (
                arguments.collective,
                arguments.dtype,
                arguments.group_name,
                arguments.group_description,
                arguments.group_ranks,
            )
        ]
        collective, dtype, name, description, ranks = text
        if collective:
            named = KINDS.index(kind_of_collective(collective))
            kind[i] = named if named != _UNKNOWN else kind[i]
        group[i] = resolver.index(name, description, ranks)
        sequence[i] = arguments.sequence[p]
        dtypes[i] = dtype_index(dtype)
        size_bytes[i] = size_in_bytes(max(int(arguments.in_elements[p]), int(arguments.out_elements[p])), dtype)
    _complete_from_annotations(events, launch_row, kind, size_bytes, dtypes)
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
        launch_track=np.where(launch_row != ABSENT, events.track[launch_row], ABSENT).astype(np.int32),
        linked=position != ABSENT,
    )
    return communication, is_communication


def _kinds_of_names(events: EventTable, device: DeviceEvents, rules: Sequence[CommunicationRule]) -> Int32:
    """Return int32 [strings]: the kind that each name of a kernel or copy stands for, or ABSENT.

    Each name is matched once.
    """
    result = np.full(len(events.strings), ABSENT, dtype=np.int32)
    for name in _names(events, device.row[device.is_kernel]):
        kind = kind_of_kernel(events.strings[name], rules)
        if kind is not None:
            result[name] = KINDS.index(kind)
    for name in _names(events, device.row[~device.is_kernel]):
        if _PEER_COPY.search(events.strings[name]):
            result[name] = KINDS.index("peer_copy")
    return result


def _names(events: EventTable, rows: Int64) -> Int64:
    """Return the distinct names of some events."""
    return np.flatnonzero(np.bincount(events.name[rows] + 1)[1:])


def argument_positions(events: EventTable, row: Int64) -> Int64:
    """Return int64 [k]: the position of each kernel's collective arguments, or ABSENT.

    They are recorded with the kernel itself, or with its `record_param_comms` operator.
    """
    arguments = events.collective_arguments
    with_collective = np.flatnonzero(arguments.collective != ABSENT)
    position_of_event = {int(arguments.row[p]): int(p) for p in with_collective}
    position_of_operator = {int(events.external_id[arguments.row[p]]): int(p) for p in with_collective}
    position_of_operator.pop(ABSENT, None)
    external_id = events.external_id[row]
    positions = (
        position_of_event.get(int(r), position_of_operator.get(int(e), ABSENT))
        for r, e in zip(row, external_id, strict=True)
    )
    return np.fromiter(positions, dtype=np.int64, count=len(row))


def _unclassified(events: EventTable, device: DeviceEvents, undecided: Bool) -> Bool:
    """Return a mask [m] of the kernels that no rule matches (`undecided` [m]) but that look like communication.

    There are two reasons to think so:

    1. The operator behind the kernel (same external id) is a collective of c10d.
    2. A collective launched the kernel, and the kernel's stream carries nothing but communication. That means:

       (a) The launch lies, on its thread, inside a `c10d::*`, `_c10d_functional::*` or `record_param_comms` operator or
           an `nccl:*` annotation.
       (b) A rule matches at least one kernel of the stream.
       (c) Every other kernel of the stream is matched by a rule or meets 1 or (a).

    (b) is needed since a stream of unknown kernels is no evidence by itself. (c) is needed since collectives also
    launch copies on the stream that computes; these are compute.
    """
    issues = events.in_category("cpu_op") & events.named(lambda name: _ISSUES_COLLECTIVE.match(name) is not None)
    ids = np.sort(events.external_id[issues])
    external_ids = events.external_id[device.row]
    place = np.searchsorted(ids, external_ids)  # np.isin would sort what is wanted, too
    is_issued = undecided & (external_ids != ABSENT) & (np.append(ids, ABSENT)[place] == external_ids)
    candidate = is_issued | (undecided & _launch_is_within(events, device, issues | _annotations(events)))
    stream = events.track[device.row]
    claimed, mixed = np.zeros((2, len(events.tracks)), dtype=np.bool_)
    claimed[stream[device.is_kernel & ~undecided]] = True
    mixed[stream[undecided & ~candidate]] = True
    result: Bool = is_issued | (candidate & claimed[stream] & ~mixed[stream])
    return result


def _launch_is_within(events: EventTable, device: DeviceEvents, enclosing: Bool) -> Bool:
    """Return a mask [m] of the device events that were launched, on the same thread, during an event of `around`
    [n].
    """
    result = np.zeros(len(device.row), dtype=np.bool_)
    thread = np.where(device.linked, events.track[device.launch_row], ABSENT)
    for track in events.tracks_of(enclosing):
        on_track = np.flatnonzero(thread == track)
        running = Intervals.of_events(events, enclosing & (events.track == track))
        result[on_track] = running.covers(events.start_ns[device.launch_row[on_track]])
    return result


def _annotations(events: EventTable) -> Bool:
    """Return a mask [n] of the `nccl:<kind>` annotations."""
    return events.named(lambda name: _ANNOTATION.match(name) is not None)


def _complete_from_annotations(
    events: EventTable, launch_row: Int64, kind: Int32, size_bytes: Int64, dtypes: Int32
) -> None:
    """Fill in what is missing from the `nccl:<kind>` annotation around each launch.

    That is the kind of a kernel that is named only SendRecv or Generic, and a size and data type that no argument
    gives.
    """
    annotation = _annotation_of_launch(events, launch_row)
    shapes = recorded_shapes(events)
    for i in np.flatnonzero(annotation != ABSENT):
        match = _ANNOTATION.match(events.strings[events.name[annotation[i]]])
        assert match is not None
        named = KINDS.index(kind_of_collective(match.group(1)))
        if kind[i] in (_SEND_RECV, _UNKNOWN) and named != _UNKNOWN:
            kind[i] = named
        if size_bytes[i] == ABSENT and int(annotation[i]) in shapes:
            size_bytes[i] = shapes[int(annotation[i])].size_bytes
            dtypes[i] = dtype_index(shapes[int(annotation[i])].dtype)


def _annotation_of_launch(events: EventTable, launch_row: Int64) -> Int64:
    """Return int64 [k]: the row of the `nccl:<kind>` annotation around each launch on its thread, or ABSENT."""
    result = np.full(len(launch_row), ABSENT, dtype=np.int64)
    annotations = np.flatnonzero(_annotations(events))
    annotations = annotations[np.argsort(events.start_ns[annotations], kind="stable")]
    for track in events.tracks_of(annotations):
        on_track = annotations[events.track[annotations] == track]
        launches = np.flatnonzero((launch_row != ABSENT) & (events.track[launch_row] == track))
        start_ns = events.start_ns[launch_row[launches]]
        preceding = np.searchsorted(events.start_ns[on_track], start_ns, side="right") - 1
        is_inside = (preceding >= 0) & (events.end_ns[on_track[np.maximum(preceding, 0)]] >= start_ns)
        result[launches[is_inside]] = on_track[preceding[is_inside]]
    return result
