"""The section on what a change would save."""

from __future__ import annotations

from dataclasses import replace

from tracekit.analysis.pipeline.bubbles import pipeline
from tracekit.analysis.pipeline.parts import ACTIONS
from tracekit.analysis.pipeline.sections import PIPELINE_SECTION
from tracekit.analysis.section import AnalysisInput, Section, Unavailable
from tracekit.analysis.timeline.parts import WAITS, Waits
from tracekit.analysis.timeline.recorded_steps import RecordedSteps
from tracekit.analysis.timeline.waits import rank_waits
from tracekit.analysis.whatif.findings import whatif_findings
from tracekit.analysis.whatif.whatif import WhatIf, what_if_of_run

__all__ = ["WHATIF_SECTION"]


def _waits(recorded: RecordedSteps) -> Waits:
    return rank_waits(recorded.trace, recorded.lanes)


def _analyze(given: AnalysisInput) -> WhatIf | Unavailable:
    result = what_if_of_run(given.run)
    if isinstance(result, Unavailable):
        return result
    found = given.once(pipeline) if PIPELINE_SECTION.name in given.wanted else None
    uneven = None if found is None or isinstance(found, Unavailable) else found.uneven_stage
    return replace(result, findings=tuple(whatif_findings(given.run, result, uneven)))


WHATIF_SECTION: Section[WhatIf] = Section(
    name="whatif",
    analyze=_analyze,
    reads=(ACTIONS, WAITS),
    keeps={WAITS: _waits},
)
