"""One decoded trace with its lanes and phases, the start of everything that is computed from it.

A worker makes it once. The summary uses it, and so does the rank's page of a merged trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tracekit.health.rank_checks import RankHealth, rank_health
from tracekit.model.events import DecodedTrace
from tracekit.rank.communication_rules import CommunicationRule
from tracekit.rank.kernel_launches import on_host_clock, without_overlaps
from tracekit.rank.lanes import Lanes, build_lanes
from tracekit.rank.phases import PhaseTimeline, phase_timeline
from tracekit.rank.steps import RECORDED_STEPS, StepSearch


@dataclass(frozen=True, kw_only=True)
class Recording:
    """A decoded trace, its lanes and its phases, and what is to be doubted in it."""

    trace: DecodedTrace
    lanes: Lanes
    phases: PhaseTimeline
    health: RankHealth


def recording_of(
    trace: DecodedTrace, rules: Sequence[CommunicationRule], search: StepSearch = RECORDED_STEPS
) -> Recording:
    """Return the recording of a trace, all on the host's clock."""
    events, device, behind_ns = on_host_clock(trace.events)
    events, overlapping = without_overlaps(events, device)
    trace = replace(trace, events=events)
    lanes = build_lanes(trace, rules, device=device, search=search)
    lanes = replace(lanes, device_behind_ns=behind_ns, overlapping=overlapping)
    health = rank_health(trace, lanes)
    windows = lanes.windows
    lanes = replace(lanes, windows=replace(windows, complete=windows.complete & ~health.masked))
    phases = phase_timeline(trace.events, lanes.threads, windows.thread, windows.host_start_ns)
    return Recording(trace=trace, lanes=lanes, phases=phases, health=health)
