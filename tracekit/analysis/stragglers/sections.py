"""Sections on ranks that hold up the others, and on the critical path."""

from __future__ import annotations

from tracekit.analysis.section import Section
from tracekit.analysis.stragglers import columns
from tracekit.analysis.stragglers.arrivals import Arrivals, arrivals_of
from tracekit.analysis.stragglers.critical_path import CriticalPath, critical_path
from tracekit.analysis.stragglers.stragglers import Stragglers, counted_steps, stragglers
from tracekit.analysis.timeline.parts import STEP_ENDS, StepEndSegments
from tracekit.analysis.timeline.recorded_steps import RecordedSteps
from tracekit.analysis.timeline.segments import computing_or_loading, step_end_segments
from tracekit.model.run import Run

__all__ = ["CRITICAL_PATH_SECTION", "STRAGGLERS_SECTION"]


def _step_ends(recorded: RecordedSteps) -> StepEndSegments:
    return step_end_segments(recorded.lanes, recorded.once(computing_or_loading))


def _arrivals(run: Run) -> Arrivals:
    return arrivals_of(run, frozenset(counted_steps(run)))


STRAGGLERS_SECTION: Section[Stragglers] = Section(
    name="stragglers",
    analyze=lambda given: stragglers(given.run, given.once(_arrivals)),
    tables=(columns.STRAGGLERS,),
)
CRITICAL_PATH_SECTION: Section[CriticalPath] = Section(
    name="critical_path",
    reads=(STEP_ENDS,),
    keeps={STEP_ENDS: _step_ends},
    analyze=lambda given: critical_path(given.run, given.once(_arrivals)),
    tables=(columns.CRITICAL_PATH,),
)
