"""Collectives of one rank, and what the rank did before each of them and before each step's end.

Such a segment begins when the rank was last released from communication that it waited for. A release is the end of a
collective or receive at which nothing computed. A step's beginning is no release: a batch that is loaded between two
steps delays the first collective of the second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b

import numpy as np

from tracekit.analysis.events.kernel_launches import BEFORE_RECORDING
from tracekit.analysis.events.phases import data_loading
from tracekit.analysis.timeline.lanes import Lanes
from tracekit.analysis.timeline.parts import StepEndSegments
from tracekit.analysis.timeline.recorded_steps import RecordedSteps
from tracekit.model.collectives import Collectives
from tracekit.model.communication import KINDS, CommunicationEvents, GroupKey
from tracekit.model.events import ABSENT, DecodedTrace, EventTable, Int64
from tracekit.model.intervals import Intervals

# Transfers between two ranks, and events that may be no communication at all.
_NO_COLLECTIVES = tuple(KINDS.index(kind) for kind in ("send", "recv", "peer_copy", "unclassified"))
# Start and duration may each be rounded to a microsecond: an event that begins at an end can seem to begin before it.
_ROUNDED_NS = 2_000
_QUEUED_NS = 10_000  # from the end of a kernel to the start of one that waits for it, on another stream
_SEND_RECV = KINDS.index("send_recv")
_RELEASES_NOBODY = tuple(KINDS.index(kind) for kind in ("send", "peer_copy", "unclassified"))

__all__ = ["Work", "computing_or_loading", "merge_collectives", "rank_collectives", "step_end_segments"]


Work = tuple[Intervals, Intervals]
"""When a rank computes, and when it loads data and does not compute."""


def rank_collectives(trace: DecodedTrace, lanes: Lanes, work: Work, *, exchanges_messages: bool) -> Collectives:
    """Return the collectives of one recording; `group` is an index into the groups of the lanes' communication events.

    `exchanges_messages` says whether the rank's sends and receives are known. Then a kernel that sends and receives is
    one of them; otherwise it may be an all-to-all.
    """
    communication = lanes.communication_events
    left_out = (*_NO_COLLECTIVES, _SEND_RECV) if exchanges_messages else _NO_COLLECTIVES
    rows = np.flatnonzero(~np.isin(communication.kind, left_out))
    if not len(rows):
        return Collectives.empty()
    first, end_ns = _group_events(communication, lanes, rows)
    tie_breakers = (
        column[first]
        for column in (
            communication.sequence,
            communication.size_bytes,
            communication.dtype,
            communication.kind,
            communication.group,
        )
    )
    order = np.lexsort((*tie_breakers, end_ns, communication.start_ns[first], communication.launch_ns[first]))
    first, end_ns = first[order], end_ns[order]
    launch_ns, start_ns = communication.launch_ns[first], communication.start_ns[first]
    released_ns = _last_release_ns(lanes, start_ns, end_ns)
    start_ns = np.maximum(start_ns, released_ns)
    window = lanes.window[first]
    begun_ns, works = _work_begins(trace, lanes)
    # A CPU rank goes on after a launch. How much work it begins before Gloo's thread starts is chance.
    until_ns = np.maximum(launch_ns, released_ns) if lanes.device == "cpu" else start_ns
    before, after = (np.searchsorted(begun_ns, time_ns, side="left") for time_ns in (released_ns, until_ns))
    sums = np.concatenate((np.zeros(1, dtype=np.uint64), np.cumsum(works, dtype=np.uint64)))
    computing, loading = work
    return Collectives(
        group=communication.group[first],
        kind=communication.kind[first],
        sequence=communication.sequence[first],
        step=np.where(window >= 0, lanes.windows.step[window], ABSENT),
        size_bytes=communication.size_bytes[first],
        dtype=communication.dtype[first],
        launch_ns=np.where(launch_ns == BEFORE_RECORDING, start_ns, launch_ns),
        start_ns=start_ns,
        end_ns=end_ns,
        released_ns=released_ns,
        queued_ns=_queued_ns(lanes, launch_ns, start_ns, end_ns, released_ns),
        compute_ns=computing.covered_ns(released_ns, start_ns),
        data_ns=loading.covered_ns(released_ns, start_ns),
        operations=(after - before).astype(np.int64),
        work=(sums[after] - sums[before]).view(np.int64),
    )


def step_end_segments(lanes: Lanes, work: Work) -> StepEndSegments:
    """Return the segment before the end of every step window."""
    until_ns = lanes.windows.end_ns
    released_ns = _last_release_ns(lanes, until_ns, until_ns)
    computing, loading = work
    return StepEndSegments(
        released_ns=released_ns,
        until_ns=until_ns,
        compute_ns=computing.covered_ns(released_ns, until_ns),
        data_ns=loading.covered_ns(released_ns, until_ns),
    )


def computing_or_loading(recorded: RecordedSteps) -> Work:
    """Return when the rank computes, and when it loads data and does not compute.

    A device that has enough work does not wait for the loading. What a CPU computes while it loads is part of loading.
    """
    trace, lanes = recorded.trace, recorded.lanes
    loading = data_loading(trace.events, lanes.windows.thread)
    if lanes.device == "gpu":
        return lanes.compute, loading - lanes.compute
    return lanes.compute - loading, loading


def merge_collectives(
    parts: Sequence[tuple[Collectives, Sequence[GroupKey]]], groups: Sequence[GroupKey]
) -> Collectives:
    """Return the collectives of a rank's recordings as one table, with `group` as an index into the rank's `groups`.

    Each of the `parts` comes with the groups of its recording.
    """
    number = {group: i for i, group in enumerate(groups)}
    renumbered = []
    for collectives, window_groups in parts:
        numbers = np.array([*(number[group] for group in window_groups), ABSENT], dtype=np.int32)
        renumbered.append(replace(collectives, group=numbers[collectives.group]))
    merged = Collectives.concatenate(renumbered)
    return merged.rows(np.argsort(merged.launch_ns, kind="stable"))


def _group_events(communication: CommunicationEvents, lanes: Lanes, rows: Int64) -> tuple[Int64, Int64]:
    """Return the first event and the last end of each collective among the events `rows`, int64 [k] each.

    The further events of a collective that ran as several share its launch.
    """
    keys = (
        communication.start_ns[rows],
        ~lanes.counted[rows],
        communication.launch_track[rows],
        communication.launch_ns[rows],
    )
    rows = rows[np.lexsort(keys)]
    opens = lanes.counted[rows]
    opens[0] = True
    first = np.flatnonzero(opens)
    return rows[first], np.maximum.reduceat(communication.end_ns[rows], first)


def _last_release_ns(lanes: Lanes, start_ns: Int64, end_ns: Int64) -> Int64:
    """Return int64 [n]: when the rank was last released before each start.

    A release may seem to be up to the rounding after the start. Before the first release it is the recording's
    beginning.
    """
    communication = lanes.communication_events
    is_release = ~np.isin(communication.kind, _RELEASES_NOBODY)
    ends_ns = communication.end_ns[is_release]
    before_ns = np.maximum(ends_ns - _ROUNDED_NS, np.minimum(communication.start_ns[is_release], ends_ns - 1))
    release_ends_ns = np.sort(ends_ns[~lanes.compute.covers(before_ns)])
    begin_ns = min(int(lanes.windows.host_start_ns[0]), int(lanes.windows.start_ns[0]))
    released_ns = _latest_end_ns(release_ends_ns, start_ns, end_ns)
    return np.where(released_ns != ABSENT, released_ns, np.minimum(begin_ns, start_ns))


def _queued_ns(lanes: Lanes, launch_ns: Int64, start_ns: Int64, end_ns: Int64, released_ns: Int64) -> Int64:
    """Return int64 [n]: the end of other communication at which each collective began, or ABSENT.

    The collective was launched before that end, and the end released nobody.
    """
    communication = lanes.communication_events
    ends_ns = np.sort(communication.end_ns[~np.isin(communication.kind, _RELEASES_NOBODY)])
    before_ns = _latest_end_ns(ends_ns, start_ns, end_ns)
    queued = (start_ns - before_ns <= _QUEUED_NS) & (launch_ns < before_ns) & (before_ns > released_ns)
    return np.where(queued, before_ns, ABSENT)


def _latest_end_ns(ends_ns: Int64, start_ns: Int64, end_ns: Int64) -> Int64:
    """Return int64 [n]: the last of `ends_ns` (ascending) at or before each start, up to rounding; or ABSENT.

    An event's end does not count for itself.
    """
    latest_ns = np.maximum(start_ns, np.minimum(start_ns + _ROUNDED_NS, end_ns - 1))
    return np.append(ends_ns, ABSENT)[np.searchsorted(ends_ns, latest_ns, side="right") - 1]


def _work_begins(trace: DecodedTrace, lanes: Lanes) -> tuple[Int64, np.ndarray]:
    """Return when each compute operation began, in order: int64 [n]; and a hash of its name and shape: uint64 [n]."""
    events = trace.events
    rows = lanes.compute_rows
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    return events.start_ns[rows], _work_hashes(events, rows)


def _work_hashes(events: EventTable, rows: Int64) -> np.ndarray:
    """Return uint64 [n]: hashes that are equal for the same name and shape in every process.

    Different multisets of operations have different sums of hashes.
    """
    names = np.zeros(len(events.strings), dtype=np.uint64)
    for name in np.unique(events.name[rows]).tolist():
        digest = blake2b(events.strings[name].encode("utf-8", "replace"), digest_size=8).digest()
        names[name] = int.from_bytes(digest, "little")
    with np.errstate(over="ignore"):
        mixed = names[events.name[rows]] ^ (events.shape[rows].view(np.uint64) * np.uint64(0x9E3779B97F4A7C15))
        mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(0xBF58476D1CE4E5B9)
        return np.asarray(mixed ^ (mixed >> np.uint64(27)))
