"""Sections on the critical path, and on the causes of the step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.analysis.communication.tables import COMMUNICATION_SUMS
from tracekit.analysis.diagnosis import tables
from tracekit.analysis.diagnosis.per_rank import phase_activities
from tracekit.analysis.diagnosis.tables import PHASE_ACTIVITIES
from tracekit.analysis.pauses.tables import PAUSE_TIMES
from tracekit.analysis.section import AnalysisInput, Section, Unavailable
from tracekit.analysis.stragglers.sections import STRAGGLERS_SECTION, arrivals
from tracekit.analysis.timeline.parts import STEP_ENDS, WAITS, StepEndSegments
from tracekit.analysis.timeline.recorded_steps import RecordedSteps
from tracekit.analysis.timeline.segments import computing_or_loading, step_end_segments

if TYPE_CHECKING:
    from tracekit.analysis.diagnosis.critical_path import CriticalPath
    from tracekit.analysis.diagnosis.diagnosis import Diagnosis

__all__ = ["CRITICAL_PATH_SECTION", "DIAGNOSIS_SECTION"]


def _step_ends(recorded: RecordedSteps) -> StepEndSegments:
    return step_end_segments(recorded.lanes, recorded.once(computing_or_loading))


def _path(given: AnalysisInput) -> CriticalPath:
    # Imported here: a worker, which reads single ranks, needs nothing of what runs over all of them.
    from tracekit.analysis.diagnosis.critical_path import critical_path

    return critical_path(given.run, given.once(arrivals))


def _diagnose(given: AnalysisInput) -> Diagnosis | Unavailable:
    from tracekit.analysis.diagnosis.diagnosis import diagnose
    from tracekit.analysis.pipeline.bubbles import pipeline
    from tracekit.analysis.step_time.step_rates import INDEPENDENT

    if given.run.common_steps() and given.run.ranks_are_independent:
        return Unavailable(reason=INDEPENDENT, expected=True)
    path, found = given.result(CRITICAL_PATH_SECTION), given.result(STRAGGLERS_SECTION)
    if isinstance(path, Unavailable) or isinstance(found, Unavailable):
        return Unavailable(reason="the chain that bounds the steps is not known")
    of_pipeline = given.once(pipeline)
    return diagnose(
        given.run,
        given.once(arrivals),
        path,
        found.verdict,
        None if isinstance(of_pipeline, Unavailable) else of_pipeline,
    )


CRITICAL_PATH_SECTION: Section[CriticalPath] = Section(
    name="critical_path",
    reads=(STEP_ENDS, PHASE_ACTIVITIES, WAITS),
    keeps={STEP_ENDS: _step_ends, PHASE_ACTIVITIES: phase_activities},
    analyze=_path,
    tables=(tables.CRITICAL_PATH,),
)
DIAGNOSIS_SECTION: Section[Diagnosis] = Section(
    name="diagnosis",
    reads=(COMMUNICATION_SUMS, PAUSE_TIMES, *CRITICAL_PATH_SECTION.reads, *STRAGGLERS_SECTION.reads),
    analyze=_diagnose,
    tables=(tables.CAUSES,),
)
