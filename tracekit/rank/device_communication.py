"""Which device events of a GPU rank are communication, and of which kind, group and size.

A rule matches the kernel's name; kind, group and size come from the operator behind the kernel. Where the name does not
tell what an event does, what launched it tells it, or what runs on its stream.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tracekit.model.communication import KINDS, CommunicationEvents
from tracekit.model.events import ABSENT, Bool, DecodedTrace, EventTable, Int32, Int64
from tracekit.model.intervals import Intervals
from tracekit.model.names.collectives import kind_of_collective
from tracekit.rank.communication_rules import (
    COMPUTE,
    CommunicationRule,
    dtype_index,
    rule_finder,
    size_in_bytes,
)
from tracekit.rank.groups import GroupResolver
from tracekit.rank.kernel_launches import DeviceEvents
from tracekit.rank.kernel_names import COMPUTING_LIBRARIES, MOST_NAMES, function_of_kernel
from tracekit.rank.message_operators import (
    MessageOperators,
    join_launches,
    message_operators,
)
from tracekit.rank.phases import innermost_span
from tracekit.rank.shapes import recorded_shapes

_UNKNOWN = KINDS.index("unknown")
_SEND, _RECV, _SEND_RECV = (KINDS.index(kind) for kind in ("send", "recv", "send_recv"))
MESSAGE_KINDS = (_SEND, _RECV, _SEND_RECV, _UNKNOWN)
"""Kinds of kernels that may send or receive messages. RCCL's kernels have one name for all that they do."""
_UNCLASSIFIED, _PEER_COPY_KIND = (KINDS.index(kind) for kind in ("unclassified", "peer_copy"))
_PEER_COPY = re.compile(r"Memcpy PtoP|Peer to Peer")
_OPERATORS = ("c10d::", "_c10d_functional::")
_ANNOTATION = re.compile(r"^(?:nccl|rccl|xccl):(\w+)")

EXCHANGES = tuple(KINDS.index(kind) for kind in ("dispatch", "combine"))
"""Kinds of kernels that bring tokens to experts and take them back."""
# Calls of CUDA and HIP that copy between two devices. CUPTI names such a copy PtoP (CUpti_ActivityMemcpyKind), ROCm
# names it like a copy within a device.
_PEER_COPY_CALL = re.compile(r"^(?:cuda|cu|hip)Memcpy(?:3D)?Peer")
_COLLECTIVE_OPERATOR = re.compile(r"^(?:c10d::|_c10d_functional::(?!wait_tensor)|record_param_comms$)")
_COLLECTIVE_ANNOTATION = re.compile(r"^(?:nccl|rccl|xccl):\w+")
# Operators, autograd functions and Python functions that communicate, by any library: symm_mem::one_shot_all_reduce,
# _C_custom_ar::all_reduce of vLLM, FusedDispatch of Megatron's fused_a2a.py and its backward, `deep_ep/buffer.py(354):
# dispatch`, `torch/distributed/distributed_c10d.py(2776): all_reduce`, `<built-in method intranode_dispatch of ...>`.
_DISTRIBUTED = re.compile(
    r"(?i)all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|all2all|symm(?:etric)?_mem|nvshmem|mscclpp"
    r"|deep_?ep(?![a-z])|\b(?:fused|hybridep)(?:dispatch|combine)|\b(?:intra|inter)node_(?:dispatch|combine)"
    r"|distributed_c10d\.py"
)
_COMPUTES = ("aten::", "prims::", "triton_", "## Call CompiledFxGraph")


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


def unclassified(
    events: EventTable, device: DeviceEvents, undecided: Bool, *, communicates: Bool, computes: Bool
) -> Bool:
    """Return a mask [m] of the kernels that no rule is for (`undecided` [m]) but that look like communication.

    `communicates` and `computes`, [m] each, are device events for which a rule says so.

    There are three reasons to think so:

    1. The operator behind the kernel (same external id) is a collective of c10d.
    2. A collective launched the kernel: the launch lies, on its thread, inside a `c10d::*`, `_c10d_functional::*` or
       `record_param_comms` operator or an `nccl:*` annotation. A rule is for at least one kernel of the stream.
    3. Something distributed launched the kernel: an operator, module or Python function whose name says so
       (`_DISTRIBUTED`), or a collective, with no other operator between that and the launch. And the kernel is of no
       library that only computes: FSDP2 copies on a stream of its own, in `fsdp::all_gather_copy_in`.

    2 and 3 hold only on a stream of communication: no kernel there computes by a rule, and all without a rule have one
    of these reasons. Collectives also launch copies on the stream that computes, and those are compute.
    """
    if not undecided.any():
        return undecided
    collective = events.in_category("cpu_op") & events.named(lambda name: _COLLECTIVE_OPERATOR.match(name) is not None)
    annotation = events.named(lambda name: _COLLECTIVE_ANNOTATION.match(name) is not None)
    ids = np.sort(events.external_id[collective])
    external_ids = events.external_id[device.row]
    index = np.searchsorted(ids, external_ids)  # np.isin would sort what is wanted, too
    is_issued = undecided & (external_ids != ABSENT) & (np.append(ids, ABSENT)[index] == external_ids)
    host = events.in_category("cpu_op", "python_function")
    others = undecided & ~is_issued
    others &= _first_is_launched_by_distributed(events, device, others, host, collective | annotation)
    by_collective = _launched_within(events, device, others, collective | annotation)
    by_distributed = _launched_by_distributed(events, device, others, host, collective | annotation)
    stream = events.track[device.row]
    claimed, mixed = np.zeros((2, len(events.tracks)), dtype=np.bool_)
    claimed[stream[communicates]] = True
    mixed[stream[computes | undecided & ~(is_issued | by_collective | by_distributed)]] = True
    result: Bool = is_issued | (~mixed[stream] & ((by_collective & claimed[stream]) | by_distributed))
    return result


def launched_as_peer_copies(events: EventTable, device: DeviceEvents) -> Bool:
    """Return a mask [m] of the copies that a call for a copy between two devices launched."""
    launched = device.linked & ~device.is_kernel
    result = np.zeros(len(device.row), dtype=np.bool_)
    calls = events.named(lambda name: _PEER_COPY_CALL.match(name) is not None)
    result[launched] = calls[device.launch_row[launched]]
    return result


def take_kind_of_next_exchange(events: EventTable, device: DeviceEvents, kind: Int32, prepares: Bool) -> None:
    """Give kernels that prepare an exchange of tokens (`prepares` [m]) the kind of the next one on their stream.

    `kind`, int32 [m], is changed. The kind of a kernel behind the last exchange stays as it is.
    """
    if not prepares.any():
        return
    exchange = np.isin(kind, EXCHANGES)
    if not exchange.any():
        return
    chosen = np.flatnonzero(exchange | prepares)
    row = device.row[chosen]
    chosen = chosen[np.lexsort((events.start_ns[row], events.track[row]))]
    stream = events.track[device.row[chosen]]
    position = np.arange(len(chosen))
    next_exchange = np.minimum.accumulate(np.where(exchange[chosen], position, len(chosen))[::-1])[::-1]
    found = prepares[chosen] & (next_exchange < len(chosen))
    found[found] = stream[next_exchange[found]] == stream[found]
    kind[chosen[found]] = kind[chosen[next_exchange[found]]]


def _launched_within(events: EventTable, device: DeviceEvents, wanted: Bool, enclosing: Bool) -> Bool:
    """Return a mask [m] of the device events among `wanted` [m] that were launched, on the same thread, during one of
    the events `enclosing` [n].
    """
    result = np.zeros(len(device.row), dtype=np.bool_)
    indexes = np.flatnonzero(wanted & device.linked)
    if not len(indexes):
        return result
    rows, calls = np.flatnonzero(enclosing), device.launch_row[indexes]
    track, thread = events.track[rows], events.track[calls]
    for number in np.intersect1d(track, thread).tolist():
        on_thread = thread == number
        running = Intervals.of_events(events, rows[track == number])
        result[indexes[on_thread]] = running.covers(events.start_ns[calls[on_thread]])
    return result


def _launched_by_distributed(
    events: EventTable, device: DeviceEvents, undecided: Bool, host: Bool, collective: Bool
) -> Bool:
    """Return a mask [m] of the kernels among `undecided` [m] for which reason 3 holds.

    `host` [n] are operators and Python functions, and `collective` [n] the events of reason 2.
    """
    if not undecided.any():
        return undecided
    named = np.zeros(len(events.strings), dtype=np.bool_)
    for name in np.flatnonzero(np.bincount(events.name[host] + 1)[1:]).tolist():
        named[name] = _is_distributed(events.strings[name])
    distributed = collective | (host & named[events.name])
    result = _launched_within(events, device, undecided, distributed)
    candidates = np.flatnonzero(result)
    if len(candidates):
        calls = device.launch_row[candidates]
        tracks = events.track[calls].astype(np.int64)
        spans = np.flatnonzero((distributed | events.in_category("cpu_op")) & events.on_tracks(np.unique(tracks)))
        innermost = innermost_span(events, _around(events, spans, calls), tracks, events.start_ns[calls])
        kernel_names = events.name[device.row[candidates]]
        computes = np.zeros(len(events.strings), dtype=np.bool_)
        for number in np.unique(kernel_names).tolist():
            computes[number] = function_of_kernel(events.strings[number]).startswith(COMPUTING_LIBRARIES)
        result[candidates] = (innermost != ABSENT) & distributed[innermost] & ~computes[kernel_names]
    return result


def _first_is_launched_by_distributed(
    events: EventTable, device: DeviceEvents, undecided: Bool, host: Bool, collective: Bool
) -> Bool:
    """Return a mask [m] of the device events on streams whose first undecided kernel was launched inside something
    distributed. On any other stream reasons 2 and 3 hold for none, and the names of all host events need no look.
    """
    streams = events.track[device.row]
    worth_a_look = np.zeros(len(events.tracks), dtype=np.bool_)
    positions = np.flatnonzero(undecided & device.linked)
    for stream in events.tracks_of(device.row[positions]).tolist():
        call = device.launch_row[positions[np.argmax(streams[positions] == stream)]]
        around = np.flatnonzero((events.start_ns <= events.start_ns[call]) & (events.end_ns > events.start_ns[call]))
        around = around[(events.track[around] == events.track[call]) & (host[around] | collective[around])]
        worth_a_look[stream] = collective[around].any() or any(
            _is_distributed(events.strings[name]) for name in events.name[around].tolist()
        )
    result: Bool = worth_a_look[streams]
    return result


def _around(events: EventTable, spans: Int64, calls: Int64) -> Int64:
    """Return those of `spans`, int64 [s], during which any of `calls`, int64 [k], begins on any thread."""
    times_ns = np.sort(events.start_ns[calls])
    first = np.searchsorted(times_ns, events.start_ns[spans], side="left")
    return spans[np.searchsorted(times_ns, events.end_ns[spans], side="left") > first]


@lru_cache(MOST_NAMES)
def _is_distributed(name: str) -> bool:
    return not name.startswith(_COMPUTES) and _DISTRIBUTED.search(name) is not None
