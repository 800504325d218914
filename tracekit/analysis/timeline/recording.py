"""One recording, told apart: a decoded trace with what every look at it begins with.

Comes in: the trace. Goes out: a `Recording`; a worker makes it once, for the summary and, by way of a shelf, for the
page of a merged trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tracekit.analysis.events.communication_rules import CommunicationRule
from tracekit.analysis.events.phases import PhaseTimeline, phase_timeline
from tracekit.analysis.timeline.lanes import Lanes, build_lanes
from tracekit.model.events import DecodedTrace
from tracekit.read.cache.spool import Shelf
from tracekit.read.files.storage import TracePath

__all__ = ["Recording", "recording_of"]


@dataclass(frozen=True, kw_only=True)
class Recording:
    trace: DecodedTrace
    lanes: Lanes
    phases: PhaseTimeline

    def lay_aside(self, shelf: Shelf, path: TracePath) -> None:
        shelf.keep(path, self.trace, (self.lanes, self.phases))

    @staticmethod
    def taken_from(shelf: Shelf, path: TracePath) -> Recording | None:
        """What was laid aside of `path`, which leaves the shelf; None where nothing was."""
        taken = shelf.take(path)
        if taken is None:
            return None
        trace, (lanes, phases) = taken
        return Recording(trace=trace, lanes=lanes, phases=phases)


def recording_of(trace: DecodedTrace, rules: Sequence[CommunicationRule], *, whole: bool = False) -> Recording:
    """`whole` takes the recording as one window of time."""
    lanes = build_lanes(trace, rules, whole=whole)
    phases = phase_timeline(trace.events, lanes.threads, lanes.windows.host_start_ns)
    return Recording(trace=trace, lanes=lanes, phases=phases)
