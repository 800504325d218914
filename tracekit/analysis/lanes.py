"""Lanes of one rank: when it computes, communicates and copies.

Comes in: a decoded trace. Goes out: `Lanes`. On a GPU rank the lanes are device events; on a CPU rank operators and
`gloo:*` spans, less the time in which the calling thread was blocked (definitions.md, "Lanes").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tracekit.analysis.communication_rules import CommunicationRule
from tracekit.analysis.device_communication import device_communication
from tracekit.analysis.device_links import DeviceEvents, device_events
from tracekit.analysis.host_communication import HostCommunication, host_communication, is_span, point_to_point
from tracekit.analysis.phases import autograd_threads
from tracekit.analysis.steps import StepWindows, step_windows
from tracekit.model.communication import CommunicationEvents
from tracekit.model.events import Bool, DecodedTrace, EventTable, Int64
from tracekit.model.intervals import EMPTY, Intervals
from tracekit.model.spans import LABEL_PREFIX, WAIT_SPAN

__all__ = ["Lanes", "build_lanes"]

_LABELS = (LABEL_PREFIX, "Redistribute", "FSDP::", "FullyShardedDataParallel.", "DistributedDataParallel.", "PP:")
# From issuing to waiting Python takes some 10 us, ten times as much on a crowded machine; computing takes longer.
_AT_ONCE_NS = 500_000
_COMMUNICATION_OPERATORS = ("c10d::", "_c10d_functional::", "c10d_functional::")


@dataclass(frozen=True, kw_only=True)
class Lanes:
    """The lanes of one recording, and what they were made from.

    threads: tracks of the step and of autograd. Of each of the n `communication_events`, `window`: int64 [n], the index
    of the step window it belongs to, or -1, and `counted`: bool [n], False for the second and further spans of a
    collective that ran as several.
    """

    device: Literal["gpu", "cpu"]
    compute: Intervals
    communication: Intervals
    copy: Intervals
    communication_events: CommunicationEvents
    device_events: DeviceEvents
    windows: StepWindows
    window: Int64
    counted: Bool
    threads: Int64


def build_lanes(trace: DecodedTrace, rules: Sequence[CommunicationRule], *, whole: bool = False) -> Lanes:
    """Lanes and step windows of one trace; `whole` takes the recording as one window."""
    events = trace.events
    device = device_events(events)
    if device.is_kernel.any() or _kernels_cut_off(trace):
        found, is_communication = device_communication(trace, device, rules)
        compute_row = device.row[device.is_kernel & ~is_communication]
        copy_row = device.row[~device.is_kernel & ~is_communication]
        windows = step_windows(trace, device, compute_row, whole=whole)
        return Lanes(
            device="gpu",
            compute=Intervals.of_events(events, compute_row),
            communication=Intervals.union_of(found.start_ns, found.end_ns),
            copy=Intervals.of_events(events, copy_row),
            communication_events=found,
            device_events=device,
            windows=windows,
            window=windows.index_of_device(device, events.start_ns[device.row])[is_communication],
            counted=np.ones(len(found), dtype=np.bool_),
            threads=_threads(events, windows),
        )
    windows = step_windows(trace, device, np.empty(0, dtype=np.int64), whole=whole)
    threads = _threads(events, windows)
    communication = host_communication(trace)
    found = communication.events
    return Lanes(
        device="cpu",
        compute=_host_compute(trace, threads, communication),
        communication=Intervals.union_of(found.start_ns, found.end_ns),
        copy=EMPTY,
        communication_events=found,
        device_events=device,
        windows=windows,
        window=windows.index_of(found.launch_ns),
        counted=communication.counted,
        threads=threads,
    )


def _kernels_cut_off(trace: DecodedTrace) -> bool:
    """A file that ended before its kernels came: nothing in it runs on a device, but it names one. Of a whole file
    that says nothing: a CPU rank's host may have GPUs.
    """
    metadata = trace.header.metadata
    on_device = metadata is not None and metadata.device.type != "cpu"
    return not trace.complete and (on_device or (metadata is None and bool(trace.header.device_names)))


def _threads(events: EventTable, windows: StepWindows) -> Int64:
    """The step's thread and the autograd engine's, less those on which gloo runs."""
    gloo = np.unique(events.track[events.named(is_span) & ~point_to_point(events)])
    candidates = np.setdiff1d(autograd_threads(events), gloo)
    return np.union1d(candidates, [windows.thread] if windows.thread >= 0 else []).astype(np.int64)


def _host_compute(trace: DecodedTrace, threads: Int64, communication: HostCommunication) -> Intervals:
    events = trace.events
    operator = events.in_category("cpu_op", "Operator")
    label = events.named(lambda name: name.startswith(_LABELS))
    communicates = events.named(lambda name: name.startswith(_COMMUNICATION_OPERATORS))
    waits = events.named(WAIT_SPAN.__eq__)
    # The capture records every blocking wait, so with its metadata no span means that nothing waited.
    waits_recorded = trace.header.metadata is not None or bool(waits.any())
    compute = EMPTY
    for thread in threads:
        here = operator & (events.track == thread)
        working, communicating = np.flatnonzero(here & ~label & ~communicates), np.flatnonzero(here & communicates)
        blocked = Intervals.of_events(events, communicating)
        if waits_recorded:
            blocked = blocked | _recorded_waits(events, np.flatnonzero(waits & (events.track == thread)), here & ~label)
        else:
            blocked = blocked | _waits_inferred(events, int(thread), working, communication)
        compute = compute | (Intervals.of_events(events, working) - blocked)
    return compute


def _recorded_waits(events: EventTable, waits: Int64, operators: Bool) -> Intervals:
    """Wait spans, and the moment before each in which a blocking call goes from its `c10d::*` operator to its wait."""
    rows = np.flatnonzero(operators)
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    start_ns = events.start_ns[waits].copy()
    before = np.searchsorted(events.start_ns[rows], start_ns, side="right") - 1
    latest = rows[np.maximum(before, 0)] if len(rows) else np.zeros(len(waits), dtype=np.int64)
    issued = events.named(lambda name: name.startswith(_COMMUNICATION_OPERATORS))[latest] & (before >= 0)
    gap_ns = start_ns - events.end_ns[latest]
    at_once = issued & (gap_ns > 0) & (gap_ns < _AT_ONCE_NS)
    start_ns[at_once] = events.end_ns[latest[at_once]]
    return Intervals.union_of(start_ns, events.end_ns[waits])


def _waits_inferred(events: EventTable, thread: int, operators: Int64, communication: HostCommunication) -> Intervals:
    """Without wait spans: the self time of operators around a collective while what they issued is in flight."""
    issued = np.flatnonzero(events.track[communication.operator_row] == thread)
    issue_ns = events.start_ns[communication.operator_row[issued]]
    start_ns, end_ns = events.start_ns[operators], events.end_ns[operators]
    holds = np.searchsorted(issue_ns, end_ns, side="left") > np.searchsorted(issue_ns, start_ns, side="left")
    around = Intervals.of_events(events, operators[holds])
    inside = around.covers(issue_ns)
    issued, issue_ns = issued[inside], issue_ns[inside]
    outermost_end_ns = around.end_ns[np.searchsorted(around.start_ns, issue_ns, side="right") - 1]
    flight = Intervals.union_of(issue_ns, np.minimum(communication.flight_end_ns[issued], outermost_end_ns))
    return (around - Intervals.of_events(events, operators[~holds])) & flight
