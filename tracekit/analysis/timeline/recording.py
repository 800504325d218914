"""One decoded trace with its lanes and phases, the start of everything that is computed from it.

A worker makes it once. The summary uses it, and so does the rank's page of a merged trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tracekit.analysis.events.communication_rules import CommunicationRule
from tracekit.analysis.events.phases import PhaseTimeline, phase_timeline
from tracekit.analysis.timeline.lanes import Lanes, build_lanes
from tracekit.model.events import DecodedTrace

__all__ = ["Recording", "recording_of"]


@dataclass(frozen=True, kw_only=True)
class Recording:
    """A decoded trace, its lanes and its phases."""

    trace: DecodedTrace
    lanes: Lanes
    phases: PhaseTimeline


def recording_of(trace: DecodedTrace, rules: Sequence[CommunicationRule], *, whole: bool = False) -> Recording:
    """Return the recording of a trace. With `whole` it is one window of time."""
    lanes = build_lanes(trace, rules, whole=whole)
    phases = phase_timeline(trace.events, lanes.threads, lanes.windows.thread, lanes.windows.host_start_ns)
    return Recording(trace=trace, lanes=lanes, phases=phases)
