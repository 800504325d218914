"""Collectives of one rank, and what the rank did before each of them and before each step's end.

Such a segment begins when the rank was last released from communication that it waited for, and ends when the rank was
ready. A release is the end of a collective or receive at which nothing computed. A step's beginning is no release: a
batch that is loaded between two steps delays the first collective of the second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b

import numpy as np

from tracekit.model.communication import KINDS, Collectives, CommunicationEvents, GroupKey
from tracekit.model.events import ABSENT, ROUNDED_NS, Bool, DecodedTrace, EventTable, Int64
from tracekit.model.intervals import Intervals
from tracekit.rank.kernel_launches import BEFORE_RECORDING
from tracekit.rank.lanes import Lanes
from tracekit.rank.phases import data_loading
from tracekit.rank.ready_times import device_ready_times, rank_waits, released_ns
from tracekit.rank.recorded_steps import RecordedSteps, StepEndSegments

# Transfers between two ranks, and events that may be no communication at all. NCCL runs an all-to-all as a kernel that
# is named SendRecv, too. The operator that launched it tells the two apart.
_NO_COLLECTIVES = tuple(KINDS.index(kind) for kind in ("send", "recv", "send_recv", "peer_copy", "unclassified"))
_QUEUED_NS = 10_000  # from the end of a span to the start of one that waited for its thread
_RELEASES_NOBODY = tuple(KINDS.index(kind) for kind in ("send", "peer_copy", "unclassified"))


Work = tuple[Intervals, Intervals]
"""When a rank computes, and when it loads data and does not compute."""


def rank_collectives(trace: DecodedTrace, lanes: Lanes, work: Work) -> Collectives:
    """Return the collectives of one recording; `group` is an index into the groups of the communication events."""
    communication = lanes.communication_events
    rows = np.flatnonzero(~np.isin(communication.kind, _NO_COLLECTIVES) & _has_known_members(lanes))
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
    if lanes.device == "gpu":
        ready = device_ready_times(trace.events, lanes)
        ready_ns, queued_ns = ready.ready_ns[first], ready.queued_ns[first]
        released_ns = _last_release_ns(lanes, ready_ns, end_ns)
    else:
        ready_ns, released_ns = start_ns, _last_release_ns(lanes, start_ns, end_ns)
        queued_ns = _queued_ns(lanes, launch_ns, start_ns, end_ns, released_ns)
    start_ns, ready_ns = np.maximum(start_ns, released_ns), np.maximum(ready_ns, released_ns)
    window = lanes.window[first]
    computing, loading = work
    rows, begun_ns = _work_begins(trace, lanes)
    before = np.searchsorted(begun_ns, launch_ns, side="left")
    hashes = _work_hashes(trace.events, rows)
    if lanes.device == "gpu":
        work_ns = _sums(trace.events.duration_ns[rows])[before]
    else:
        begin_ns = np.full(len(first), begun_ns.min(initial=int(launch_ns.min())))
        work_ns = computing.covered_ns(begin_ns, launch_ns)
    return Collectives(
        group=communication.group[first],
        kind=communication.kind[first],
        sequence=communication.sequence[first],
        step=np.where(window >= 0, lanes.windows.step[window], ABSENT),
        size_bytes=communication.size_bytes[first],
        dtype=communication.dtype[first],
        launch_ns=np.where(launch_ns == BEFORE_RECORDING, start_ns, launch_ns),
        ready_ns=ready_ns,
        start_ns=start_ns,
        end_ns=end_ns,
        waited_ns=_waited_ns(trace, lanes, ready_ns, end_ns),
        released_ns=released_ns,
        queued_ns=queued_ns,
        compute_ns=computing.covered_ns(released_ns, ready_ns),
        data_ns=loading.covered_ns(released_ns, ready_ns),
        operations=before.astype(np.int64),
        work_ns=work_ns,
        work=_sums(hashes)[before].view(np.int64),
    )


def _has_known_members(lanes: Lanes) -> Bool:
    """Return a mask [n] of the communication events of which it is known which ranks take part.

    Kernels of libraries other than NCCL name no group. On a rank whose groups have different members, such a kernel may
    be of any of these; elsewhere it is of all ranks. In a group of one rank nothing communicates.
    """
    communication = lanes.communication_events
    several = len({group.ranks for group in communication.groups if len(group.ranks) != 1}) > 1
    named: Bool = (communication.group != ABSENT) | (lanes.device == "cpu") | (not several)
    return named


def step_end_segments(recorded: RecordedSteps) -> StepEndSegments:
    """Return the segment before the end of every step window."""
    lanes, work = recorded.lanes, recorded.once(computing_or_loading)
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
    lanes, loading = recorded.lanes, recorded.once(loading_times)
    if lanes.device == "gpu":
        return lanes.compute, loading - lanes.compute
    return lanes.compute - loading, loading


def loading_times(recorded: RecordedSteps) -> Intervals:
    """Return when the step's thread is in a data loader."""
    return data_loading(recorded.trace.events, recorded.lanes.windows.thread)


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
    before_ns = np.maximum(ends_ns - ROUNDED_NS, np.minimum(communication.start_ns[is_release], ends_ns - 1))
    before_ns = np.minimum(before_ns, released_ns(lanes)[is_release] - 1)
    release_ends_ns = np.sort(ends_ns[~lanes.compute.covers(before_ns)])
    begin_ns = min(int(lanes.windows.host_start_ns[0]), int(lanes.windows.start_ns[0]))
    latest_ns = _latest_end_ns(release_ends_ns, start_ns, end_ns)
    return np.where(latest_ns != ABSENT, latest_ns, np.minimum(begin_ns, start_ns))


def _waited_ns(trace: DecodedTrace, lanes: Lanes, ready_ns: Int64, end_ns: Int64) -> Int64:
    """Return for how long the rank waited from being ready for each collective until its end, int64 [n].

    A device waits when it does not compute, unless it does at the end. The host of a CPU rank may be busy then; its
    thread may go on before the span of the collective ends.
    """
    if lanes.device == "gpu":
        waited_ns = end_ns - ready_ns - lanes.compute.covered_ns(ready_ns, end_ns)
        return np.where(lanes.compute.covers(end_ns - 1), 0, waited_ns)
    waits = rank_waits(trace, lanes)
    return Intervals.union_of(waits.since_ns, waits.until_ns).covered_ns(ready_ns, end_ns)


def _queued_ns(lanes: Lanes, launch_ns: Int64, start_ns: Int64, end_ns: Int64, released_ns: Int64) -> Int64:
    """Return int64 [n]: the end of other communication at which each collective of a CPU rank began, or ABSENT.

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
    latest_ns = np.maximum(start_ns, np.minimum(start_ns + ROUNDED_NS, end_ns - 1))
    return np.append(ends_ns, ABSENT)[np.searchsorted(ends_ns, latest_ns, side="right") - 1]


def _work_begins(trace: DecodedTrace, lanes: Lanes) -> tuple[Int64, Int64]:
    """Return the rows of all compute operations in the order in which the host began them, and when: int64 [n] each.

    A kernel begins with its launch, for what lies between two launches of a program does not depend on time. Kernels
    that were launched before the recording are left out.
    """
    events, device = trace.events, lanes.device_events
    if lanes.device == "gpu":
        computes = lanes.computes & ~device.before_recording
        rows, begun_ns = device.row[computes], device.launch_ns[computes]
    else:
        rows, begun_ns = lanes.compute_rows, events.start_ns[lanes.compute_rows]
    order = np.argsort(begun_ns, kind="stable")
    return rows[order], begun_ns[order]


def _sums(values: np.ndarray) -> np.ndarray:
    """Return the sums of the first 0, 1, ... n values, [n + 1]."""
    return np.concatenate((np.zeros(1, dtype=values.dtype), np.cumsum(values, dtype=values.dtype)))


def _work_hashes(events: EventTable, rows: Int64) -> np.ndarray:
    """Return uint64 [n]: hashes that are equal for the same name and shape in every process.

    Different multisets of operations have different sums of hashes.
    """
    names = np.zeros(len(events.strings), dtype=np.uint64)
    for name in np.flatnonzero(np.bincount(events.name[rows] + 1)[1:]).tolist():
        digest = blake2b(events.strings[name].encode("utf-8", "replace"), digest_size=8).digest()
        names[name] = int.from_bytes(digest, "little")
    with np.errstate(over="ignore"):
        mixed = names[events.name[rows]] ^ (events.shape[rows].view(np.uint64) * np.uint64(0x9E3779B97F4A7C15))
        mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(0xBF58476D1CE4E5B9)
        return np.asarray(mixed ^ (mixed >> np.uint64(27)))
