"""One decoded trace with its lanes and phases, the start of everything that is computed from it.

A worker makes it once. The summary uses it, and so does the rank's page of a merged trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tracekit.analysis.events.communication_rules import CommunicationRule
from tracekit.analysis.events.kernel_launches import on_host_clock
from tracekit.analysis.events.phases import PhaseTimeline, phase_timeline
from tracekit.analysis.timeline.lanes import Lanes, build_lanes
from tracekit.analysis.timeline.steps import StepWindows
from tracekit.model.events import DecodedTrace

_MOST_OF_A_STEP = 0.5  # by which a device's clock may be off: more may be a jump of the host's clock

__all__ = ["Recording", "recording_of"]


@dataclass(frozen=True, kw_only=True)
class Recording:
    """A decoded trace, its lanes and its phases."""

    trace: DecodedTrace
    lanes: Lanes
    phases: PhaseTimeline


def recording_of(trace: DecodedTrace, rules: Sequence[CommunicationRule], *, whole: bool = False) -> Recording:
    """Return the recording of a trace, all on the host's clock. With `whole` it is one window of time."""
    events, device, behind_ns = on_host_clock(trace.events)
    if behind_ns:
        trace = replace(trace, events=events)
    lanes = build_lanes(trace, rules, device=device, whole=whole)
    if behind_ns:
        lanes = replace(lanes, device_behind_ns=behind_ns, windows=_with_device_behind(lanes.windows, behind_ns))
    phases = phase_timeline(trace.events, lanes.threads, lanes.windows.thread, lanes.windows.host_start_ns)
    return Recording(trace=trace, lanes=lanes, phases=phases)


def _with_device_behind(windows: StepWindows, behind_ns: int) -> StepWindows:
    """Return the windows; their times are not known if the device's clock is off by a large part of a step."""
    steps_ns = np.diff(np.append(windows.host_start_ns, windows.host_end_ns))
    if windows.source == "recording" or behind_ns <= _MOST_OF_A_STEP * steps_ns.min():
        return windows
    reason = f"kernels begin {behind_ns / 1e6:,.3f} ms before they are launched, which is too much to correct"
    return replace(windows, contradiction=windows.contradiction or reason)
