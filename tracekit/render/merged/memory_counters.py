"""Memory over time, from the records that the profiler writes with `profile_memory`.

A device has one or two counters, in bytes:

* `GPU 0 · allocated`, `GPU 0 · reserved`: the allocator's totals in tensors and in all, as
  `torch.cuda.memory_allocated()` and `memory_reserved()` return them;
* `CPU · allocated less freed`: bytes allocated since the recording began, less bytes freed, as far as they were
  recorded. PyTorch writes totals for the CPU too, but they are wrong: they miss what was allocated while nothing was
  recorded, and still contain what was freed then. Any device without totals has this counter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from tracekit.model.clocks import ClockModel
from tracekit.model.events import ABSENT, EventTable, Float64, Int64, MemoryRecords
from tracekit.model.intervals import Intervals

__all__ = ["MemoryCounter", "joined", "memory_counters"]

_CPU = 0
_DEVICES = {_CPU: "CPU", 1: "GPU", 6: "GPU", 12: "XPU", 13: "MPS", 15: "HPU", 19: "MTIA"}
"""Names of device types, by number in c10::DeviceType."""


@dataclass(frozen=True, kw_only=True, eq=False)
class MemoryCounter:
    """A counter of n values.

    Attributes:
        name: Name of the counter.
        time_ns: Time from which each value holds, on the run's clock, ascending, int64 [n].
        values: Bytes, float64 [n].
    """

    name: str
    time_ns: Int64
    values: Float64


def memory_counters(events: EventTable, clock: ClockModel, shown: Intervals | None) -> Iterator[MemoryCounter]:
    """Yield the counters of one recording. `shown`: the time to show, on the rank's clock; None: all."""
    records = events.memory
    if not len(records):
        return
    begin_ns = int(events.start_ns.min())
    order = np.lexsort((records.time_ns, records.device_id, records.device_type))
    device = np.stack((records.device_type[order], records.device_id[order]))
    for rows in np.split(order, np.flatnonzero(np.any(device[:, 1:] != device[:, :-1], axis=0)) + 1):
        kind, number = int(records.device_type[rows[0]]), int(records.device_id[rows[0]])
        label = _DEVICES.get(kind, f"device of type {kind}") + ("" if number == ABSENT else f" {number}")
        for name, time_ns, values in _curves(records, rows, begin_ns):
            # Values from before the first event hold when that begins.
            time_ns = np.maximum(time_ns, begin_ns)
            if shown is not None:
                time_ns, values = _within(shown, time_ns, values)
            changes = _changes(time_ns, values)
            yield MemoryCounter(
                name=f"{label} · {name}",
                time_ns=clock.to_run(time_ns[changes]),
                values=values[changes].astype(np.float64),
            )


def _curves(records: MemoryRecords, rows: Int64, begin_ns: int) -> Iterator[tuple[str, Int64, Int64]]:
    """Yield name, times and values of each counter of one device, whose records are `rows`, in order of time."""
    time_ns, allocated, reserved = records.time_ns[rows], records.allocated_bytes[rows], records.reserved_bytes[rows]
    has_reserve = bool((reserved > 0).any())
    if records.device_type[rows[0]] == _CPU or not (has_reserve or (allocated > 0).any()):
        since_begin = np.append(0, np.cumsum(records.change_bytes[rows]))
        yield "allocated less freed", np.append(begin_ns, time_ns), since_begin
        return
    yield "allocated", time_ns[allocated >= 0], allocated[allocated >= 0]
    if has_reserve:
        yield "reserved", time_ns[reserved >= 0], reserved[reserved >= 0]


def _changes(time_ns: Int64, values: Int64) -> Int64:
    """Return the indexes at which another value begins to hold. Of several values at one time the last holds."""
    last = np.flatnonzero(np.append(time_ns[1:] != time_ns[:-1], True)[: len(time_ns)])
    differs = values[last[1:]] != values[last[:-1]]
    changes: Int64 = last[np.append(True, differs)[: len(last)]]
    return changes


def _within(shown: Intervals, time_ns: Int64, values: Int64) -> tuple[Int64, Int64]:
    """Return times and values inside the intervals `shown`. Each interval begins with the value that holds there."""
    before = np.searchsorted(time_ns, shown.start_ns, side="right") - 1
    known = before >= 0
    within = shown.covers(time_ns)
    time_ns = np.concatenate((shown.start_ns[known], time_ns[within]))
    values = np.concatenate((values[before[known]], values[within]))
    order = np.argsort(time_ns, kind="stable")
    return time_ns[order], values[order]


def joined(counters: Iterable[MemoryCounter]) -> Iterator[MemoryCounter]:
    """Join the counters of several recordings that have the same name."""
    by_name: defaultdict[str, list[MemoryCounter]] = defaultdict(list)
    for counter in counters:
        by_name[counter.name].append(counter)
    for name, parts in by_name.items():
        time_ns = np.concatenate([part.time_ns for part in parts])
        order = np.argsort(time_ns, kind="stable")
        values = np.concatenate([part.values for part in parts])
        yield MemoryCounter(name=name, time_ns=time_ns[order], values=values[order])
