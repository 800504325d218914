"""Which copies between the host and the device are missing in the recording.

A copy that the host waits for has run when its operator ends, and Kineto records it. Other copies may have no record:
Kineto records none between two GPUs (CuptiActivityApi.cpp enables no MEMCPY2), and CUPTI none of no bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracekit.analysis.events.kernel_launches import RUNTIME_CATEGORIES, DeviceEvents
from tracekit.model.events import ABSENT, Bool, EventTable, Int64

__all__ = ["HostCopies", "host_copies"]

_CALLS = frozenset({"cudaMemcpyAsync", "hipMemcpyAsync"})
_WAITS = frozenset({"cudaStreamSynchronize", "hipStreamSynchronize"})
_TO_HOST = "aten::_local_scalar_dense"  # one element
_COPY = "aten::copy_"  # returns before it copies nothing (copy_impl of ATen/native/Copy.cpp)


@dataclass(frozen=True, kw_only=True, eq=False)
class HostCopies:
    """n calls that surely copy between the host and the device, and wait for that.

    Attributes:
        start_ns: int64 [n].
        missing: whether the copy is not recorded, bool [n].
    """

    start_ns: Int64
    missing: Bool


def host_copies(events: EventTable, device: DeviceEvents) -> HostCopies:
    """Return the copies that the host waits for; none if each call that copies has its record."""
    row = np.flatnonzero(events.named(_CALLS.__contains__) & events.in_category(*RUNTIME_CATEGORIES))
    row = row[(events.correlation[row] != ABSENT) & (events.external_id[row] != ABSENT)]
    recorded = np.zeros(len(events), dtype=np.bool_)
    recorded[device.launch_row[device.linked]] = True
    if not recorded[row].all():  # rarely: all that follows is about these
        row = row[_is_awaited(events, row)]
        missing = ~np.isin(events.correlation[row], events.correlation[device.row])
    else:
        row, missing = row[:0], np.zeros(0, dtype=np.bool_)
    return HostCopies(start_ns=events.start_ns[row], missing=missing)


def _is_awaited(events: EventTable, row: Int64) -> Bool:
    """Return a mask [n] of the calls of `row` whose operator reads an element, or copies and waits for the stream."""
    ids = events.external_id
    waits = events.named(_WAITS.__contains__) & events.in_category(*RUNTIME_CATEGORIES)
    reads, copies = (events.named(name.__eq__) & events.in_category("cpu_op") for name in (_TO_HOST, _COPY))
    of_reads, of_copies, of_waits = (np.isin(ids[row], ids[mask]) for mask in (reads, copies, waits))
    return np.asarray(of_reads | (of_copies & of_waits))
