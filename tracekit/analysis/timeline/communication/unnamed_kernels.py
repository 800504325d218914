"""What device events do whose names do not tell it: by what launched them, and by what runs on their stream."""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np

from tracekit.analysis.events.innermost_span import innermost_span
from tracekit.analysis.events.kernel_launches import DeviceEvents
from tracekit.analysis.events.kernel_names import MOST_NAMES, function_of_kernel
from tracekit.model.communication import KINDS
from tracekit.model.events import ABSENT, Bool, EventTable, Int32, Int64
from tracekit.model.intervals import Intervals

__all__ = ["EXCHANGES", "launched_as_peer_copies", "take_kind_of_next_exchange", "unclassified"]

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
_COMPUTING_LIBRARIES = ("at::native::", "at_cuda_detail::", "cub::", "thrust::", "rocprim::", "cudnn::")
_COMPUTES = ("aten::", "prims::", "triton_", "## Call CompiledFxGraph")


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
    place = np.searchsorted(ids, external_ids)  # np.isin would sort what is wanted, too
    is_issued = undecided & (external_ids != ABSENT) & (np.append(ids, ABSENT)[place] == external_ids)
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
    places = np.flatnonzero(wanted & device.linked)
    if not len(places):
        return result
    rows, calls = np.flatnonzero(enclosing), device.launch_row[places]
    track, thread = events.track[rows], events.track[calls]
    for number in np.intersect1d(track, thread).tolist():
        on_thread = thread == number
        running = Intervals.of_events(events, rows[track == number])
        result[places[on_thread]] = running.covers(events.start_ns[calls[on_thread]])
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
            computes[number] = function_of_kernel(events.strings[number]).startswith(_COMPUTING_LIBRARIES)
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
