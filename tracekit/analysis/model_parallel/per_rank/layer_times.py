"""How long a module and what is inside it took, in the time of a rank's lanes.

Forward, that is the time of the module's spans on the host; backward, the time of the autograd nodes that they made. On
a GPU rank it is the time of the device on what was launched there, from the first start to the last end.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tracekit.analysis.events.device_extent import device_extent
from tracekit.analysis.events.modules import HostStretches, stretches_of_modules
from tracekit.analysis.events.phases import PhaseTimeline
from tracekit.analysis.timeline.lanes import Lanes
from tracekit.model.events import ABSENT, EventTable, Int64
from tracekit.model.intervals import Intervals

__all__ = ["layer_times"]


def layer_times(
    events: EventTable, lanes: Lanes, phases: PhaseTimeline, names: Iterable[str]
) -> dict[tuple[str | None, int], Intervals]:
    """Return when each module that has spans ran in each phase (index into `PHASES`)."""
    result: dict[tuple[str | None, int], Intervals] = {}
    for name, host in stretches_of_modules(events, sorted(names)).items():
        start_ns, end_ns = (host.start_ns, host.end_ns) if lanes.device == "cpu" else _on_device(events, lanes, host)
        phase = phases.at(host.start_ns)
        for index in np.unique(phase).tolist():
            result[name, index] = Intervals.union_of(start_ns[phase == index], end_ns[phase == index])
    return result


def _on_device(events: EventTable, lanes: Lanes, host: HostStretches) -> tuple[Int64, Int64]:
    """Return begin and end of what was launched in each stretch, int64 [k] each; equal where nothing was."""
    device = lanes.device_events
    linked = np.flatnonzero(device.launch_row != ABSENT)
    row, launch_ns = device.row[linked], device.launch_ns[linked]
    track = events.track[device.launch_row[linked]]
    start_ns, end_ns = (np.zeros(len(host.track), dtype=np.int64) for _ in range(2))
    for thread in np.unique(host.track):
        order = np.flatnonzero(track == thread)
        order = order[np.argsort(launch_ns[order], kind="stable")]
        on_thread = np.flatnonzero(host.track == thread)
        first, stop = (np.searchsorted(launch_ns[order], times[on_thread]) for times in (host.start_ns, host.end_ns))
        start_ns[on_thread], end_ns[on_thread] = device_extent(
            events, row[order], first, stop, start_ns[on_thread], end_ns[on_thread]
        )
    return start_ns, end_ns
