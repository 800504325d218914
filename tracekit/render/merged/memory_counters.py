"""Memory over time, as the allocators of a rank told the profiler (`profile_memory`).

Comes in: a recording's records of memory, the time to show, the clock of its rank. Goes out: `MemoryCounter`s, in bytes
on the run's clock, one or two a device:

* `GPU 0 · allocated`, `GPU 0 · reserved`: what the allocator says that it holds of this device in tensors, and in all
  (`torch.cuda.memory_allocated()` and `memory_reserved()`);
* `CPU · allocated less freed`: what was allocated since the recording began, less what was freed, as far as the
  profiler was told. PyTorch writes totals for the CPU, too, which are none: they leave out whatever was allocated while
  nothing was recorded, and keep what was freed then. Any device without totals is shown like this.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from tracekit.model.events import ABSENT, EventTable, Int64, MemoryRecords
from tracekit.model.intervals import Intervals
from tracekit.model.run import ClockModel
from tracekit.render.trace.slices import Float64

__all__ = ["MemoryCounter", "joined", "memory_counters"]

_CPU = 0
_DEVICES = {_CPU: "CPU", 1: "GPU", 6: "GPU", 12: "XPU", 13: "MPS", 15: "HPU", 19: "MTIA"}
"""By number in c10::DeviceType."""


@dataclass(frozen=True, kw_only=True, eq=False)
class MemoryCounter:
    """n values, each from its time on; time_ns: int64 [n], on the run's clock, ascending."""

    name: str
    time_ns: Int64
    values: Float64


def memory_counters(events: EventTable, clock: ClockModel, shown: Intervals | None) -> Iterator[MemoryCounter]:
    """Of one recording, in the time to show, on the rank's clock (None: all)."""
    records = events.memory
    if not len(records):
        return
    begin_ns = int(events.start_ns.min())
    order = np.lexsort((records.time_ns, records.device_id, records.device_type))
    device = np.stack((records.device_type[order], records.device_id[order]))
    for rows in np.split(order, np.flatnonzero(np.any(device[:, 1:] != device[:, :-1], axis=0)) + 1):
        kind, number = int(records.device_type[rows[0]]), int(records.device_id[rows[0]])
        label = _DEVICES.get(kind, f"device of type {kind}") + ("" if number == ABSENT else f" {number}")
        for name, time_ns, values in _told(records, rows, begin_ns):
            # What came before the first event holds as that begins.
            time_ns = np.maximum(time_ns, begin_ns)
            if shown is not None:
                time_ns, values = _within(shown, time_ns, values)
            kept = _changes(time_ns, values)
            yield MemoryCounter(
                name=f"{label} · {name}",
                time_ns=clock.to_run(time_ns[kept]),
                values=values[kept].astype(np.float64),
            )


def _told(records: MemoryRecords, rows: Int64, begin_ns: int) -> Iterator[tuple[str, Int64, Int64]]:
    """What the records in `rows`, of one device, in order of time, say: its name, times, values."""
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
    """Where another value begins to hold; of those of one time the last does."""
    last = np.flatnonzero(np.append(time_ns[1:] != time_ns[:-1], True)[: len(time_ns)])
    differs = values[last[1:]] != values[last[:-1]]
    kept: Int64 = last[np.append(True, differs)[: len(last)]]
    return kept


def _within(shown: Intervals, time_ns: Int64, values: Int64) -> tuple[Int64, Int64]:
    """The values in the time to show, each stretch of which begins with the one that holds there."""
    before = np.searchsorted(time_ns, shown.start_ns, side="right") - 1
    known = before >= 0
    within = shown.covers(time_ns)
    time_ns = np.concatenate((shown.start_ns[known], time_ns[within]))
    values = np.concatenate((values[before[known]], values[within]))
    order = np.argsort(time_ns, kind="stable")
    return time_ns[order], values[order]


def joined(counters: Iterable[MemoryCounter]) -> Iterator[MemoryCounter]:
    """Those of several recordings, one of each name."""
    by_name: defaultdict[str, list[MemoryCounter]] = defaultdict(list)
    for counter in counters:
        by_name[counter.name].append(counter)
    for name, parts in by_name.items():
        time_ns = np.concatenate([part.time_ns for part in parts])
        order = np.argsort(time_ns, kind="stable")
        values = np.concatenate([part.values for part in parts])
        yield MemoryCounter(name=name, time_ns=time_ns[order], values=values[order])
