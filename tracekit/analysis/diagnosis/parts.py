"""What is kept of one rank to divide its time: how long it did what in each stretch of one phase."""

from __future__ import annotations

from dataclasses import dataclass

from tracekit.analysis.timeline.idle_causes import IDLE_CAUSES
from tracekit.model.columnar import Columnar
from tracekit.model.events import Int32, Int64
from tracekit.model.summary import Part

__all__ = ["ACTIVITIES", "PHASE_ACTIVITIES", "PhaseActivities"]

ACTIVITIES = ("compute", "copy", *IDLE_CAUSES)
"""What a rank does when it does not wait in communication: it computes or copies, or is idle for a cause."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PhaseActivities(Columnar):
    """n times that a rank spent on one activity in one stretch of a phase, in order of the stretches.

    Attributes:
        begin_ns: when the stretch begins, on the rank's wall clock, int64 [n].
        end_ns: when it ends; stretches do not overlap, int64 [n].
        phase: index into `STEP_PHASES`, int32 [n].
        activity: index into `ACTIVITIES`, int32 [n].
        time_ns: more than 0, int64 [n].
    """

    begin_ns: Int64
    end_ns: Int64
    phase: Int32
    activity: Int32
    time_ns: Int64


PHASE_ACTIVITIES = Part(
    name="phase_activities", type=PhaseActivities, empty=PhaseActivities.empty, merge=PhaseActivities.concatenate
)
