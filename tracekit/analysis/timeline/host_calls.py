"""Calls of a rank's host that explain why its device has nothing to do."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from tracekit.analysis.events.kernel_launches import RUNTIME_CATEGORIES, DeviceEvents
from tracekit.analysis.events.pauses.pause_times import checkpoint_calls
from tracekit.model.events import ROUNDED_NS, EventTable, Int64
from tracekit.model.intervals import Intervals
from tracekit.model.spans import GARBAGE_COLLECTION_SPAN

__all__ = ["Synchronisations", "allocations", "checkpoints", "garbage_collections", "synchronisations"]

_SYNCHRONISES = re.compile(r"\w*Synchronize|(?:cuda|hip)(?:Memcpy|MemcpyWithStream)")
_COPIES = re.compile(r"(?:cuda|hip|cu)Memcpy\w*")
# Of the runtime and of the driver, with virtual memory (expandable segments) and pinned memory of the host.
_ALLOCATES = re.compile(
    r"(?:cuda|hip)(?:Malloc|Free|HostAlloc|HostMalloc|HostFree|HostRegister|HostUnregister|MemPool)\w*|"
    r"(?:cu|hip)Mem(?:Alloc|Free|HostAlloc|Create|Release|Map|Unmap|SetAccess|AddressReserve|AddressFree)\w*"
)
_BLOCKS_NS = 20_000  # a shorter copy call may have returned before its copy ended


@dataclass(frozen=True, kw_only=True, eq=False)
class Synchronisations:
    """n calls that return when the device is done, in order of their end.

    Attributes:
        row: in the event table, int64 [n].
        begin_ns: int64 [n].
        until_ns: int64 [n].
    """

    row: Int64
    begin_ns: Int64
    until_ns: Int64


def synchronisations(events: EventTable, device: DeviceEvents, threads: Int64) -> Synchronisations:
    """Return the synchronising calls on these tracks.

    A copy call synchronises if it is named so (`cudaMemcpy`), or if it took long and returned after its copy had ended:
    `cudaMemcpyAsync` from or to memory that is not pinned does.
    """
    named = events.named(lambda name: _SYNCHRONISES.fullmatch(name) is not None)
    rows = np.flatnonzero(named & events.in_category(*RUNTIME_CATEGORIES))
    copies = np.flatnonzero(device.linked & ~device.is_kernel)
    calls = device.launch_row[copies]
    blocks = events.duration_ns[calls] >= _BLOCKS_NS
    blocks &= events.end_ns[calls] + ROUNDED_NS >= events.end_ns[device.row[copies]]
    calls = calls[blocks]
    is_copy = events.named(lambda name: _COPIES.fullmatch(name) is not None)
    rows = np.union1d(rows, calls[is_copy[calls]]).astype(np.int64)
    rows = rows[events.on_tracks(threads)[rows]]
    rows = rows[np.argsort(events.end_ns[rows], kind="stable")]
    return Synchronisations(row=rows, begin_ns=events.start_ns[rows], until_ns=events.end_ns[rows])


def allocations(events: EventTable, threads: Int64) -> Intervals:
    """Return when these tracks allocated or freed memory of the device, or pinned memory of the host."""
    named = events.named(lambda name: _ALLOCATES.fullmatch(name) is not None)
    return Intervals.of_events(events, named & events.in_category(*RUNTIME_CATEGORIES) & events.on_tracks(threads))


def garbage_collections(events: EventTable) -> Intervals:
    """Return when Python collected garbage. It stops all threads, whichever it runs on."""
    return Intervals.of_events(events, events.named(GARBAGE_COLLECTION_SPAN.__eq__))


def checkpoints(events: EventTable, threads: Int64) -> Intervals:
    """Return when these tracks saved or loaded a checkpoint."""
    calls = checkpoint_calls(events, threads)
    return Intervals.union_of(calls.start_ns, calls.end_ns)
