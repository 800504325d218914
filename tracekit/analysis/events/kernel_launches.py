"""Which host call launched each device event, and when.

The launch decides only to which step, phase or operator an event belongs. Sums of time never depend on it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracekit.model.columnar import Columnar
from tracekit.model.events import ABSENT, Bool, EventTable, Int64

__all__ = ["BEFORE_RECORDING", "DEVICE_CATEGORIES", "DeviceEvents", "device_events"]

KERNEL_CATEGORIES = ("kernel", "Kernel")  # capitalised by torch 1.8
COPY_CATEGORIES = ("gpu_memcpy", "gpu_memset", "Memcpy", "Memset")
DEVICE_CATEGORIES = KERNEL_CATEGORIES + COPY_CATEGORIES
RUNTIME_CATEGORIES = ("cuda_runtime", "cuda_driver", "Runtime", "xpu_runtime", "hip_runtime")
BEFORE_RECORDING = np.iinfo(np.int64).min
"""`launch_ns` of a device event that was launched before the recording began."""


@dataclass(frozen=True, kw_only=True, eq=False)
class DeviceEvents(Columnar):
    """m device events.

    Attributes:
        row: in the event table, int64 [m].
        launch_ns: when each was launched, int64 [m].
        launch_row: of the launching call in the event table, or -1, int64 [m].
        is_kernel: False for copies, bool [m].
    """

    row: Int64
    launch_ns: Int64
    launch_row: Int64
    is_kernel: Bool

    @property
    def linked(self) -> Bool:
        """Return a mask [m] of the events whose launch was found."""
        return np.not_equal(self.launch_row, ABSENT)

    @property
    def before_recording(self) -> Bool:
        """Return a mask [m] of the events that were launched before the recording began."""
        return np.equal(self.launch_ns, BEFORE_RECORDING)


def device_events(events: EventTable) -> DeviceEvents:
    """Return the device events, each linked to its launch by the correlation id.

    An unlinked event that starts before the first linked one of its stream was launched before the recording. Any other
    unlinked event has its start as `launch_ns`, and belongs to the window in which it starts
    (`StepWindows.index_of_device`).
    """
    row = events.each_once(events.in_category(*DEVICE_CATEGORIES))
    launch_row = _launch_rows(events, row)
    linked = launch_row != ABSENT
    start_ns = events.start_ns[row]
    launch_ns = np.where(linked, events.start_ns[launch_row], start_ns)
    streams = events.track[row]
    first_linked_ns = np.full(len(events.tracks), np.iinfo(np.int64).max, dtype=np.int64)
    np.minimum.at(first_linked_ns, streams[linked], start_ns[linked])
    any_linked = first_linked_ns != np.iinfo(np.int64).max
    early = ~linked & any_linked[streams] & (start_ns < first_linked_ns[streams])
    launch_ns[early] = BEFORE_RECORDING
    is_kernel = events.in_category(*KERNEL_CATEGORIES)[row]
    return DeviceEvents(row=row, launch_ns=launch_ns, launch_row=launch_row, is_kernel=is_kernel)


def _launch_rows(events: EventTable, device_row: Int64) -> Int64:
    """Return int64 [m]: the row of the last runtime call with the event's correlation id that began before it, or
    ABSENT.
    """
    runtime = np.flatnonzero(events.in_category(*RUNTIME_CATEGORIES) & (events.correlation != ABSENT))
    runtime = runtime[np.argsort(events.correlation[runtime], kind="stable")]
    ids = events.correlation[runtime]
    wanted_ids = events.correlation[device_row]
    first = np.searchsorted(ids, wanted_ids, side="left")
    padded = np.append(ids, (ABSENT, ABSENT))
    known = (padded[first] == wanted_ids) & (wanted_ids != ABSENT)
    result = np.where(known, np.append(runtime, ABSENT)[first], ABSENT)
    for i in np.flatnonzero(known & (padded[first + 1] == wanted_ids)):  # rare: one of the calls is after the event
        calls = runtime[first[i] : np.searchsorted(ids, wanted_ids[i], side="right")]
        calls = calls[np.argsort(events.start_ns[calls], kind="stable")]
        earlier = calls[events.start_ns[calls] <= events.start_ns[device_row[i]]]
        result[i] = earlier[-1] if len(earlier) else calls[0]
    return result
