"""Which steps of a recording lack events: device records that were lost, or what was cut off from the file.

A step of a GPU rank without its kernels would seem idle. The profiler itself writes of some losses.

Kineto writes operators first, then what the device did, then one span of the profiler itself. So a cut removes whole
tracks from every step, and only what the order of the events proves to be whole counts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import numpy as np

from tracekit.health.check import Doubt, Evidence
from tracekit.model.events import Bool, EventTable, Int32, Int64
from tracekit.model.run import format_ranges
from tracekit.rank.kernel_launches import DEVICE_CATEGORIES, RUNTIME_CATEGORIES, DeviceEvents
from tracekit.rank.lanes import Lanes
from tracekit.rank.missing_kernels import records_end_ns

# A step of which more kernels are missing is incomplete. In whole recordings none are.
_LOST_SHARE = 0.01
# Messages of Kineto whose recording of the device ended early (CuptiActivityApi.cpp, GenericActivityProfiler.cpp).
_STOPPED = re.compile(r"terminating tracing|stopped by|stopped early")
# Messages of Kineto after which device records are missing (CuptiActivityApi.cpp, GenericActivityProfiler.cpp,
# RocprofLogger.cpp, init.cpp, and the macro CUPTI_CALL).
_TELLS_OF_LOSS = re.compile(
    r"max GPU buffer count|Dropped \d+ activity records|stopped by|stopped early|profiler activities will be missing|"
    r"failed with error CUPTI_"
)
_NUMBER = re.compile(r"0x[0-9a-f]+|\d+")
_SHOWN = 3


def lost_device_records(evidence: Evidence) -> Iterator[Doubt]:
    """Yield the steps of whose kernels too many are missing, and how many kernels other steps lack."""
    lanes, windows, launches = evidence.lanes, evidence.windows, evidence.lanes.launches
    if not evidence.trace.complete or lanes.device != "gpu":
        return
    lost = _lost_windows(evidence)
    window = windows.index_of(launches.start_ns)
    in_lost = (window >= 0) & lost[window]
    if lost.any():
        of_steps = f"step {_numbers(lanes, lost)} lacks device records and does not count"
        if lost.sum() > 1:
            of_steps = f"steps {_numbers(lanes, lost)} lack device records and do not count"
        reason = "device records are missing in each of its steps"
        yield Doubt(text=of_steps, reason=reason, steps=lost, detail=_what_is_missing(lanes, in_lost))
    elsewhere = launches.missing & (window >= 0) & ~in_lost & ~launches.later
    if elsewhere.any():
        text = f"{elsewhere.sum():,} of {len(launches):,} launches have no kernel; sums lack what these took"
        yield Doubt(text=text, severity="info")


def _numbers(lanes: Lanes, windows: Bool) -> str:
    return format_ranges(lanes.windows.step[windows].tolist())


def _what_is_missing(lanes: Lanes, in_lost: Bool) -> str:
    """Return how many of the launches in lost windows, bool [launches], have no kernel."""
    missing = in_lost & lanes.launches.missing
    if not missing.any():
        return "from some moment on none is recorded, though operators go on"
    text = f"{missing.sum():,} of {in_lost.sum():,} launches there have no kernel"
    if lanes.launches.later[missing].all():
        text += ": they had not run when the recording ended, or are lost"
    return text


def _lost_windows(evidence: Evidence) -> Bool:
    """Return a mask [s] of the windows of whose kernels too many are missing, or in which all records end."""
    windows, launches = evidence.windows, evidence.lanes.launches
    lost: Bool = np.zeros(len(windows), dtype=np.bool_)
    if launches.missing.any():
        # What runs after the recording is no part of a window that ends with it.
        missing = launches.missing & ~launches.later if windows.source == "recording" else launches.missing
        index = windows.index_of(launches.start_ns)
        kernels = _sums(index, launches.kernels, len(windows))
        lost = _sums(index[missing], launches.kernels[missing], len(windows)) > _LOST_SHARE * kernels
    stopped = any(_STOPPED.search(message) for message in evidence.trace.header.profiler_messages)
    ended_ns = records_end_ns(evidence.trace.events, launches, stopped=stopped)
    if ended_ns is not None:
        lost |= np.append(windows.host_start_ns[1:], windows.host_end_ns) > ended_ns
    if lost.any():
        lost[1:] |= lost[:-1] & _begins_are_unknown(evidence.lanes)
    return lost


def _sums(index: Int64, values: Int64, count: int) -> Int64:
    """Return int64 [count]: the sum of the values at each index; those at -1 do not count."""
    inside = index >= 0
    return np.bincount(index[inside], weights=values[inside], minlength=count).astype(np.int64)


def _begins_are_unknown(lanes: Lanes) -> Bool:
    """Return a mask [s - 1] of the windows but the first that a missing kernel may have delayed.

    It was launched before the step, and after every compute kernel before the step that is recorded.
    """
    begins_ns = lanes.windows.host_start_ns[1:]
    missing_ns = lanes.launches.start_ns[lanes.launches.missing]
    compute_ns = np.sort(lanes.device_events.launch_ns[lanes.computes])
    never_ns = np.iinfo(np.int64).min
    last_missing_ns, last_compute_ns = (
        np.append(times_ns, never_ns)[np.searchsorted(times_ns, begins_ns, side="left") - 1]
        for times_ns in (missing_ns, compute_ns)
    )
    unknown: Bool = last_missing_ns > last_compute_ns
    return unknown


def unlinked_kernels(evidence: Evidence) -> Iterator[Doubt]:
    """Yield that most kernels have no launch, which may be in an earlier step."""
    lanes, device = evidence.lanes, evidence.lanes.device_events
    unlinked = lanes.computes & ~device.linked & ~device.before_recording
    without, count = int(unlinked.sum()), int(lanes.computes.sum())
    if lanes.windows.source != "recording" and 2 * without > count:
        yield Doubt(
            text=f"{without:,} of {count:,} kernels that compute have no launch: each counts in the step in which it "
            "begins, though the host may have launched it in an earlier one"
        )


def messages_of_loss(evidence: Evidence) -> Iterator[Doubt]:
    """Yield each sort of the profiler's messages that tells of lost records."""
    for sort in _sorts(evidence, of_loss=True):
        yield Doubt(text=sort)


def other_messages(evidence: Evidence) -> Iterator[Doubt]:
    """Yield the first few sorts of other messages of the profiler."""
    for sort in _sorts(evidence, of_loss=False)[:_SHOWN]:
        yield Doubt(text=sort, severity="info")


def _sorts(evidence: Evidence, *, of_loss: bool) -> list[str]:
    """Return one text for each sort of message: those that differ in numbers alone are of one sort."""
    messages = evidence.trace.header.profiler_messages
    first = {_NUMBER.sub("#", message): message for message in reversed(messages)}
    count = Counter(_NUMBER.sub("#", message) for message in messages)
    return [
        f"the profiler wrote: {first[sort]}"
        + (f" (and {count[sort] - 1} more of this sort)" if count[sort] > 1 else "")
        for sort in count
        if (_TELLS_OF_LOSS.search(first[sort]) is not None) == of_loss
    ]


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
