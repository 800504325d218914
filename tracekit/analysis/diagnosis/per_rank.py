"""Divides the time of one rank into phases, and each stretch of a phase into activities."""

from __future__ import annotations

import numpy as np

from tracekit.analysis.diagnosis.tables import ACTIVITIES, PhaseActivities
from tracekit.analysis.step_time.per_rank.phase_sums import recorded_phase_times
from tracekit.analysis.timeline.idle_causes import idle_by_cause
from tracekit.analysis.timeline.recorded_steps import RecordedSteps
from tracekit.analysis.timeline.segments import computing_or_loading

__all__ = ["phase_activities"]


def phase_activities(recorded: RecordedSteps) -> PhaseActivities:
    """Return how long the rank did what in each stretch of one phase, from the first step to the end of the last."""
    lanes = recorded.lanes
    if not recorded.steps:
        return PhaseActivities.empty()
    phases = recorded.once(recorded_phase_times)
    begin_ns = np.concatenate([phase.start_ns for phase in phases])
    end_ns = np.concatenate([phase.end_ns for phase in phases])
    phase = np.repeat(np.arange(len(phases)), [len(of_phase) for of_phase in phases])
    order = np.argsort(begin_ns, kind="stable")
    begin_ns, end_ns, phase = begin_ns[order], end_ns[order], phase[order]
    computing, loading = recorded.once(computing_or_loading)
    idle = recorded.once(idle_by_cause)
    of_activity = {cause: time - loading for cause, time in idle.items()} | {
        "compute": computing,
        "copy": lanes.exposed_copy - loading,
        "data": loading - lanes.exposed_communication,
    }
    times_ns = np.stack([of_activity[name].covered_ns(begin_ns, end_ns) for name in ACTIVITIES], axis=1)
    row, activity = np.nonzero(times_ns)
    return PhaseActivities(
        begin_ns=begin_ns[row],
        end_ns=end_ns[row],
        phase=phase[row].astype(np.int32),
        activity=activity.astype(np.int32),
        time_ns=times_ns[row, activity],
    )
