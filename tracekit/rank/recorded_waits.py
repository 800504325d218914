"""For what streams and the host waited, as CUPTI recorded it: which communication is blocking, and not only exposed.

torch.profiler records these waits with `enable_cuda_sync_events` of its experimental_config. A stream that waits for an
event runs what is launched on it from then on when all has ended that the event's stream had been given before.

    communicates  |======= all_reduce =======|                |==== all_reduce ====|
    computes    |###|                        |####|       |######|          (nothing waits: exposed, not blocking)
                    |----- blocking ---------|                   |- exposed -------|
"""

from __future__ import annotations

import numpy as np

from tracekit.model.events import ABSENT, EventTable, Int64
from tracekit.model.intervals import EMPTY, Intervals
from tracekit.rank.kernel_launches import BEFORE_RECORDING, RUNTIME_CATEGORIES
from tracekit.rank.lanes import Lanes

NEVER_NS = np.iinfo(np.int64).min // 2
_OF_A_STREAM = "Stream Wait Event"


def recorded_dependencies(events: EventTable, lanes: Lanes) -> Int64 | None:
    """Return when all that each device event had to wait for on other streams had ended, int64 [device events].

    NEVER_NS: it waited for nothing. None: the waits of streams are not recorded, or not for which streams they are.
    """
    waits, device = events.stream_waits, lanes.device_events
    rows = np.flatnonzero(
        events.named(_OF_A_STREAM.__eq__)[waits.row] & (waits.stream != ABSENT) & (waits.awaited_stream != ABSENT)
    )
    if not len(rows):
        return None
    stream_of = _stream_ids(events, device.row)
    given_ns = device.launch_ns
    called_ns, recorded_ns = events.start_ns[waits.row[rows]], _recorded_ns(events, waits.record[rows])
    recorded_ns = np.where(recorded_ns == NEVER_NS, called_ns, recorded_ns)
    depends_ns = np.full(len(device.row), NEVER_NS)
    for waiting, awaited in set(zip(waits.stream[rows].tolist(), waits.awaited_stream[rows].tolist(), strict=True)):
        of_pair = (waits.stream[rows] == waiting) & (waits.awaited_stream[rows] == awaited)
        before = stream_of == awaited
        ended_ns = _latest(given_ns[before], events.end_ns[device.row[before]], recorded_ns[of_pair])
        behind = np.flatnonzero(stream_of == waiting)
        depends_ns[behind] = np.maximum(depends_ns[behind], _latest(called_ns[of_pair], ended_ns, given_ns[behind]))
    return depends_ns


def blocking_times(events: EventTable, lanes: Lanes) -> Intervals | None:
    """Return when compute was launched, its stream was free, and it waited for communication, or the host did.

    None: it is not recorded what waits for what.
    """
    depends_ns = recorded_dependencies(events, lanes)
    if depends_ns is None:
        return None
    device = lanes.device_events
    start_ns, end_ns, streams = events.start_ns[device.row], events.end_ns[device.row], events.track[device.row]
    order = np.lexsort((start_ns, streams))
    before_ns = np.full(len(device.row), NEVER_NS)
    follows = streams[order[1:]] == streams[order[:-1]]
    before_ns[order[1:][follows]] = end_ns[order[:-1][follows]]
    launched_ns = np.where(device.linked, events.end_ns[device.launch_row], device.launch_ns)
    ready_ns = np.maximum(launched_ns, before_ns)
    until_ns = np.minimum(depends_ns, start_ns)
    waited = lanes.computes & (until_ns > ready_ns) & (launched_ns != BEFORE_RECORDING)
    by_streams = Intervals.union_of(ready_ns[waited], until_ns[waited])
    return (by_streams | _host_waits(events, lanes)) & lanes.exposed_communication


def _host_waits(events: EventTable, lanes: Lanes) -> Intervals:
    """Return when the host waited for a stream on which communication ran, or for all of them."""
    waits, communication = events.stream_waits, lanes.communication_events
    of_host = ~events.named(_OF_A_STREAM.__eq__)[waits.row]
    awaited = np.where(waits.awaited_stream == ABSENT, waits.stream, waits.awaited_stream)
    streams = _stream_ids(events, communication.row)
    result = EMPTY
    for stream in set(awaited[of_host].tolist()):
        rows = waits.row[of_host & (awaited == stream)]
        runs = np.ones(len(streams), dtype=np.bool_) if stream == ABSENT else streams == stream
        running = Intervals.union_of(communication.start_ns[runs], communication.end_ns[runs])
        result = result | (Intervals.of_events(events, rows) & running)
    return result


def _stream_ids(events: EventTable, rows: Int64) -> Int64:
    """Return the id of the stream of each device event, int64 [n]; ABSENT for tracks without a number."""
    ids = [track.tid if isinstance(track.tid, int) else ABSENT for track in events.tracks]
    return np.array(ids, dtype=np.int64)[events.track[rows]]


def _recorded_ns(events: EventTable, records: Int64) -> Int64:
    """Return when the calls with these correlation ids began, int64 [n]; NEVER_NS where a call is not recorded."""
    calls = np.flatnonzero(events.in_category(*RUNTIME_CATEGORIES) & (events.correlation != ABSENT))
    calls = calls[np.argsort(events.correlation[calls], kind="stable")]
    ids = np.append(events.correlation[calls], ABSENT)
    found = np.searchsorted(ids[:-1], records)
    known = (ids[found] == records) & (records != ABSENT)
    return np.where(known, np.append(events.start_ns[calls], NEVER_NS)[found], NEVER_NS)


def _latest(given_ns: Int64, end_ns: Int64, at_ns: Int64) -> Int64:
    """Return the latest end of all that was given up to each time, int64 [n]; NEVER_NS for nothing."""
    order = np.argsort(given_ns, kind="stable")
    latest_ns = np.append(np.maximum.accumulate(end_ns[order]), NEVER_NS)
    return latest_ns[np.searchsorted(given_ns[order], at_ns, side="right") - 1]
