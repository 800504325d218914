"""How long a module and what is inside it took, in the time of a rank's lanes.

Comes in: an event table with spans of modules, and its lanes. Goes out: by module and phase the time. It is that of the
module's spans on the host, forward, and of the nodes that these made, backward; on a GPU rank that of the device on
what was launched there, from the first start to the last end.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tracekit.analysis.lanes import Lanes
from tracekit.analysis.modules import HostStretches, stretches_of_modules
from tracekit.analysis.phases import PhaseTimeline
from tracekit.model.events import ABSENT, EventTable, Int64
from tracekit.model.intervals import Intervals

__all__ = ["layer_times"]


def layer_times(
    events: EventTable, lanes: Lanes, phases: PhaseTimeline, names: Iterable[str]
) -> dict[tuple[str | None, int], Intervals]:
    """When each module that has spans ran in each phase (index into `PHASES`)."""
    result: dict[tuple[str | None, int], Intervals] = {}
    for name, host in stretches_of_modules(events, sorted(names)).items():
        start_ns, end_ns = (host.start_ns, host.end_ns) if lanes.device == "cpu" else _on_device(events, lanes, host)
        phase = phases.at(host.start_ns)
        for index in np.unique(phase).tolist():
            result[name, index] = Intervals.union_of(start_ns[phase == index], end_ns[phase == index])
    return result


def _on_device(events: EventTable, lanes: Lanes, host: HostStretches) -> tuple[Int64, Int64]:
    """Begin and end of what was launched in each stretch, int64 [k] each; equal where nothing was."""
    device = lanes.device_events
    linked = np.flatnonzero(device.launch_row != ABSENT)
    row, launch_ns = device.row[linked], device.launch_ns[linked]
    track = events.track[device.launch_row[linked]]
    start_ns, end_ns = (np.zeros(len(host.track), dtype=np.int64) for _ in range(2))
    for thread in np.unique(host.track):
        order = np.flatnonzero(track == thread)
        order = order[np.argsort(launch_ns[order], kind="stable")]
        own, launched = np.flatnonzero(host.track == thread), row[order]
        first, last = (np.searchsorted(launch_ns[order], times[own]) for times in (host.start_ns, host.end_ns))
        own, edges = own[first < last], np.stack((first, last), axis=1)[first < last].ravel()
        if len(own):
            # `reduceat` takes no edge behind the last element; every other result is of what lies between stretches
            begun_ns = np.append(events.start_ns[launched], np.iinfo(np.int64).max)
            start_ns[own] = np.minimum.reduceat(begun_ns, edges)[::2]
            end_ns[own] = np.maximum.reduceat(np.append(events.end_ns[launched], np.iinfo(np.int64).min), edges)[::2]
    return start_ns, end_ns
