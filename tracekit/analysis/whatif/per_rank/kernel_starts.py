"""Why each kernel of a GPU rank started when it did: the one before, its launch, or communication that it waited for.

A kernel starts when the last of three has happened: the kernel before it has ended, its launch has come through, and
the communication that its stream waits for has ended. A trace shows the times, not the reason. The reason is taken to
be the last one that happened.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracekit.analysis.timeline.lanes import Lanes
from tracekit.model.columnar import Columnar
from tracekit.model.communication import KINDS
from tracekit.model.events import ABSENT, ROUNDED_NS, Bool, DecodedTrace, Int64

__all__ = ["RELEASED_NS", "KernelStarts", "kernel_starts"]

RELEASED_NS = 20_000
"""From the end of communication to the start of a kernel that waits for it, at most."""

_LATENCY_NS = 5_000  # from a launch to the start on an idle device, if the trace does not show it
_LARGEST_LATENCY_NS = 20_000
_GAP_NS = 1_000  # between two kernels that were launched in time, likewise
_LARGEST_GAP_NS = 5_000
_MAIN_SHARE = 0.1  # of the time of all kernels: a stream with less is a side stream
_SEND = KINDS.index("send")
_RELEASES_NOBODY = tuple(KINDS.index(kind) for kind in ("peer_copy", "unclassified"))


@dataclass(frozen=True, kw_only=True, eq=False)
class KernelStarts(Columnar):
    """The n kernels and copies on the main streams of a rank, in order of launch.

    Streams with little work are left out: what they copy in and out for communication is part of the transfer.

    Attributes:
        launch_ns: int64 [n].
        latency_ns: from the launch to the start on an idle device, int64 [n].
        gap_ns: from the end of the kernel before, or of the communication that it waited for, to its start, if it is
            launched in time, int64 [n].
        busy_ns: how long it adds to the time in which kernels run, int64 [n].
        reach_ns: when this and all kernels before it have ended, int64 [n].
        awaited_ns: the end of the communication that it waited for, or -1, int64 [n].
        start_ns: int64 [n].
    """

    launch_ns: Int64
    latency_ns: Int64
    gap_ns: Int64
    busy_ns: Int64
    reach_ns: Int64
    awaited_ns: Int64
    start_ns: Int64


def kernel_starts(trace: DecodedTrace, lanes: Lanes) -> KernelStarts:
    """Return the kernels and copies of a GPU rank's main streams, whose launches are known."""
    events, device = trace.events, lanes.device_events
    works = ~lanes.communicates & device.linked
    row, launch_ns = device.row[works], device.launch_ns[works]
    start_ns, end_ns, stream = events.start_ns[row], events.end_ns[row], events.track[row]
    by_stream_ns = np.bincount(stream, end_ns - start_ns, minlength=len(events.tracks))
    is_main = (by_stream_ns >= _MAIN_SHARE * by_stream_ns.sum())[stream]
    releases = _releases(lanes, start_ns[~is_main], end_ns[~is_main])
    launch_ns, start_ns, end_ns = launch_ns[is_main], start_ns[is_main], end_ns[is_main]
    order = np.argsort(launch_ns, kind="stable")  # they are in order of start
    launch_ns, start_ns, end_ns = launch_ns[order], start_ns[order], end_ns[order]
    reach_ns = np.maximum.accumulate(end_ns)
    before_ns = np.concatenate((launch_ns[:1], reach_ns[:-1]))
    gap_ns = np.maximum(start_ns - before_ns, 0)
    late = launch_ns >= before_ns
    released_by_ns, released_ns = _last_release(releases, np.maximum(before_ns, launch_ns), start_ns)
    released = released_ns != ABSENT
    after_launch_ns = np.maximum(start_ns - launch_ns, 0)
    usual_latency_ns = min(_median(after_launch_ns[late & ~released], _LATENCY_NS), _LARGEST_LATENCY_NS)
    queued = (launch_ns + 4 * usual_latency_ns < before_ns) & (start_ns >= before_ns)
    usual_gap_ns = min(_median(gap_ns[queued & ~released], _GAP_NS), _LARGEST_GAP_NS)
    waited = released & (gap_ns > 2 * usual_gap_ns + ROUNDED_NS)
    free_ns = np.where(waited, released_ns, before_ns)
    gap_ns = np.maximum(start_ns - free_ns, 0)
    by_launch = ~waited & (launch_ns + usual_latency_ns >= before_ns) & (start_ns >= before_ns)
    return KernelStarts(
        launch_ns=launch_ns,
        latency_ns=np.where(by_launch, after_launch_ns, np.minimum(after_launch_ns, usual_latency_ns)),
        gap_ns=np.where(by_launch, np.minimum(gap_ns, usual_gap_ns), gap_ns),
        busy_ns=np.maximum(end_ns - np.maximum(start_ns, before_ns), 0),
        reach_ns=reach_ns,
        awaited_ns=np.where(waited, released_by_ns, ABSENT),
        start_ns=start_ns,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Releases(Columnar):
    """e ends of communication that kernels may have waited for, in order of `released_ns`.

    Attributes:
        end_ns: of the communication, int64 [e].
        released_ns: when a kernel could start, int64 [e].
        sends: whether it only sends, bool [e].
    """

    end_ns: Int64
    released_ns: Int64
    sends: Bool


def _releases(lanes: Lanes, start_ns: Int64, end_ns: Int64) -> _Releases:
    """Return the ends of communication.

    A kernel of a side stream that starts when communication ends, such as a copy out of its buffer, is part of it:
    the communication lets others start at that kernel's end.

    start_ns, end_ns: of the kernels on side streams, int64 [k].
    """
    communication = lanes.communication_events
    rows = np.flatnonzero(~np.isin(communication.kind, _RELEASES_NOBODY))
    rows = rows[np.argsort(communication.end_ns[rows], kind="stable")]
    ends_ns, sends = communication.end_ns[rows], communication.kind[rows] == _SEND
    place = np.searchsorted(ends_ns, start_ns + ROUNDED_NS, side="right") - 1
    latest_ns = np.append(ends_ns, ABSENT)[place]
    follows = (place >= 0) & (start_ns - latest_ns <= RELEASED_NS)
    releases = _Releases(
        end_ns=np.concatenate((ends_ns, latest_ns[follows])),
        released_ns=np.concatenate((ends_ns, end_ns[follows])),
        sends=np.concatenate((sends, np.append(sends, False)[place[follows]])),
    )
    return releases.rows(np.argsort(releases.released_ns, kind="stable"))


def _last_release(releases: _Releases, since_ns: Int64, start_ns: Int64) -> tuple[Int64, Int64]:
    """Return the end of the communication that lets each of n kernels start, and when it did, int64 [n]; -1 if none.

    It is the last to end after `since_ns` and shortly before the start. A send counts if nothing else does: a kernel
    seldom waits for what it gave away, and often a receive ends at the same time.
    """
    result = np.full((2, len(start_ns)), ABSENT, dtype=np.int64)
    for possible in (releases.rows(~releases.sends), releases) if releases.sends.any() else (releases,):
        place = np.searchsorted(possible.released_ns, start_ns + ROUNDED_NS, side="right") - 1
        end_ns, latest_ns = (np.append(column, ABSENT)[place] for column in (possible.end_ns, possible.released_ns))
        found = (place >= 0) & (latest_ns > since_ns + ROUNDED_NS) & (start_ns - latest_ns <= RELEASED_NS)
        rows = np.flatnonzero(found & (result[0] == ABSENT))
        result[0, rows], result[1, rows] = end_ns[rows], latest_ns[rows]
    return result[0], result[1]


def _median(values: Int64, otherwise: int) -> int:
    middle = len(values) // 2
    return int(np.partition(values, middle)[middle]) if len(values) else otherwise
