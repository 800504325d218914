"""Which steps of a file that was cut off are certainly whole.

Kineto writes operators first, then what the device did, then one span of the profiler itself. So a cut removes whole
tracks from every step, and only what the order of the events proves to be whole counts.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tracekit.analysis.events.kernel_launches import DEVICE_CATEGORIES, RUNTIME_CATEGORIES, DeviceEvents
from tracekit.analysis.health.check import Doubt, Evidence
from tracekit.model.events import Bool, EventTable, Int32, Int64

__all__ = ["cut_off"]


def cut_off(evidence: Evidence) -> Iterator[Doubt]:
    """Yield the steps that may lack events. The text says what shows that the others are whole."""
    trace, lanes = evidence.trace, evidence.lanes
    if trace.complete:
        return
    whole, shown_by = _whole_windows(evidence)
    why = "cut off" if trace.intact else "damaged"
    reason = lanes.unrecorded or f"its file is {why}, and no step is known to be whole"
    none_counts = lanes.unrecorded is not None or not (whole & lanes.windows.complete).any()
    steps = np.ones_like(whole) if none_counts else ~whole
    yield Doubt(text=lanes.unrecorded or shown_by, reason=reason, steps=steps)


def _whole_windows(evidence: Evidence) -> tuple[Bool, str]:
    """Return a mask [s] of the windows that are whole, and what shows it."""
    trace, windows, device = evidence.trace, evidence.windows, evidence.lanes.device_events
    events, launches = trace.events, evidence.lanes.launches
    whole: Bool = np.zeros(len(windows), dtype=np.bool_)
    if not trace.intact:
        return whole, "any part of the file may be wrong"
    if bool(events.in_category("Trace")[-1]) and len(events) > 1:
        return np.logical_not(whole), "the profiler's last span is in it, so that no event is missing"
    if not device.is_kernel.any() and _lacks_spans_of_collectives(events):
        return whole, "the spans of its collectives are not in it"
    if _in_order_of_time(events):
        until_ns = int(events.start_ns[-1])
        shown_by = "its events are in order of time"
    elif device.is_kernel.any() and (closed_ns := _all_tracks_until_ns(events, device)) is not None:
        until_ns = closed_ns
        shown_by = "all its tracks go on behind the steps that count"
    else:
        return whole, "it has one track after the other, so that any step may lack events"
    whole[:-1] = windows.end_ns[:-1] <= until_ns
    if launches.missing.any():
        first_ns = launches.start_ns[launches.missing].min()
        whole &= np.append(windows.host_start_ns[1:], windows.host_end_ns) <= first_ns
    return whole, shown_by


def _lacks_spans_of_collectives(events: EventTable) -> bool:
    """Return whether collectives were issued and none is recorded: Kineto writes Gloo's threads behind all others."""
    issued = events.named(lambda name: name.startswith("c10d::"))
    return bool(issued.any()) and not events.named(lambda name: name.startswith("gloo:")).any()


def _all_tracks_until_ns(events: EventTable, device: DeviceEvents) -> int | None:
    """Return until when each track is recorded, if each is in order of time and none follows another as a whole.

    The operators of a thread and its calls of the device's runtime count as two tracks, as Kineto writes them apart.
    """
    calls = events.in_category(*RUNTIME_CATEGORIES)
    kept = np.flatnonzero(calls | events.in_category("cpu_op", *DEVICE_CATEGORIES))
    track = events.track[kept] + len(events.tracks) * calls[kept]
    if not len(kept) or not _interleaves(track):
        return None
    order = np.argsort(track, kind="stable")
    start_ns, track = events.start_ns[kept][order], track[order]
    last = np.append(np.diff(track) > 0, True)
    if (np.diff(start_ns)[~last[:-1]] < 0).any():
        return None
    # The copies of a stream of which nothing is recorded yet.
    copies = np.flatnonzero(calls & events.named(lambda name: "Memcpy" in name))
    missing = copies[~np.isin(events.correlation[copies], events.correlation[device.row])]
    return int(min(start_ns[last].min(), events.start_ns[missing].min(initial=np.iinfo(np.int64).max)))


def _in_order_of_time(events: EventTable) -> bool:
    """Return whether events follow each other in time across tracks."""
    return bool((np.diff(events.start_ns) >= 0).all()) and _interleaves(events.track)


def _interleaves(track: Int32 | Int64) -> bool:
    """Return whether events change between tracks (int32 or int64 [n]) more often than one track after the other."""
    changes = np.count_nonzero(np.diff(track))
    return bool(changes >= np.count_nonzero(np.bincount(track)))
