"""When each phase of a step is, as the report, its JSON and the merged trace count it.

A CPU rank's phases are those of its host. On a GPU rank, a phase begins on the device when the compute ends that was
launched before it, as a step does. The first compute of a phase may wait for communication that was launched before it.
That communication belongs to the phase before.
"""

from __future__ import annotations

import numpy as np

from tracekit.analysis.events.phases import STEP_PHASES, PhaseTimeline
from tracekit.analysis.timeline.lanes import Lanes
from tracekit.analysis.timeline.recorded_steps import RecordedSteps
from tracekit.analysis.timeline.steps import device_starts
from tracekit.model.events import EventTable, Int64
from tracekit.model.intervals import Intervals

__all__ = ["device_times", "phase_times", "recorded_phase_times"]


def phase_times(events: EventTable, lanes: Lanes, timeline: PhaseTimeline) -> list[Intervals]:
    """Return when each of `STEP_PHASES` was.

    They have no gaps or overlap from the first window to the end of the last.
    """
    windows = lanes.windows
    change_ns = np.unique(np.concatenate((timeline.change_ns, windows.host_start_ns)))
    phase = timeline.step_phase_at(change_ns)
    if lanes.device == "gpu":
        change_ns = device_times(events, lanes, change_ns)
    first_ns, last_ns = int(windows.start_ns[0]), int(windows.end_ns.max())
    start_ns = np.clip(np.concatenate(([first_ns], change_ns)), first_ns, last_ns)
    end_ns = np.append(start_ns[1:], last_ns)
    phase = np.concatenate(([STEP_PHASES.index("other")], phase))
    return [Intervals.union_of(start_ns[phase == i], end_ns[phase == i]) for i in range(len(STEP_PHASES))]


def recorded_phase_times(recorded: RecordedSteps) -> list[Intervals]:
    """Return when each of `STEP_PHASES` was on a rank."""
    return phase_times(recorded.trace.events, recorded.lanes, recorded.phases)


def device_times(events: EventTable, lanes: Lanes, host_ns: Int64) -> Int64:
    """Return when the device comes to what the host began at each of the ascending times `host_ns`, ascending."""
    device, communication = lanes.device_events, lanes.communication_events
    rows, launch_ns = device.row[lanes.computes], device.launch_ns[lanes.computes]
    begin_ns = device_starts(events, host_ns, device, lanes.computes)
    # While communication is still running, the phase before continues until the next compute begins.
    order = np.argsort(launch_ns, kind="stable")
    starts_ns = np.append(events.start_ns[rows][order], np.iinfo(np.int64).max)
    next_compute_ns = np.minimum.accumulate(starts_ns[::-1])[::-1]
    next_compute_ns = next_compute_ns[np.searchsorted(launch_ns[order], host_ns, side="left")]
    order = np.argsort(communication.launch_ns, kind="stable")
    reach_ns = np.concatenate(([0], np.maximum.accumulate(communication.end_ns[order])))
    communicating_ns = reach_ns[np.searchsorted(communication.launch_ns[order], host_ns, side="left")]
    return np.maximum.accumulate(np.maximum(begin_ns, np.minimum(communicating_ns, next_compute_ns)))
