"""The section on what a change would save."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tracekit.analysis.configuration.tables import CONFIGURATION
from tracekit.analysis.ddp.tables import BUCKET_REDUCTIONS
from tracekit.analysis.fsdp.tables import FSDP_REGATHERS, FSDP_UNITS
from tracekit.analysis.model_parallel.tables import EXPERT_EXCHANGES
from tracekit.analysis.pipeline.sections import PIPELINE_SECTION
from tracekit.analysis.pipeline.tables import ACTIONS
from tracekit.analysis.section import AnalysisInput, Section, Unavailable
from tracekit.analysis.step_time.tables import MEMORY_USE
from tracekit.analysis.timeline.parts import WAITS, Waits
from tracekit.analysis.timeline.recorded_steps import RecordedSteps
from tracekit.analysis.timeline.waits import rank_waits
from tracekit.analysis.whatif import tables
from tracekit.analysis.whatif.per_rank.exchanges import exchanges
from tracekit.analysis.whatif.per_rank.launch_segments import interruptions, launch_segments
from tracekit.analysis.whatif.tables import EXCHANGES, INTERRUPTIONS, LAUNCH_SEGMENTS, LaunchSegments

if TYPE_CHECKING:
    from tracekit.analysis.whatif.whatif import WhatIf

__all__ = ["WHATIF_SECTION"]


def _waits(recorded: RecordedSteps) -> Waits:
    return rank_waits(recorded.trace, recorded.lanes)


def _segments(recorded: RecordedSteps) -> LaunchSegments:
    return launch_segments(recorded, recorded.once(PIPELINE_SECTION.keeps[ACTIONS]))


def _analyze(given: AnalysisInput) -> WhatIf | Unavailable:
    # Imported here: a worker, which reads single ranks, needs nothing of what runs over all of them.
    from tracekit.analysis.pipeline.bubbles import pipeline
    from tracekit.analysis.whatif.findings import whatif_findings
    from tracekit.analysis.whatif.whatif import what_if_of_run

    result = what_if_of_run(given.run)
    if isinstance(result, Unavailable):
        return result
    found = given.once(pipeline) if PIPELINE_SECTION.name in given.wanted else None
    uneven = None if found is None or isinstance(found, Unavailable) else found.uneven_stage
    return replace(result, findings=tuple(whatif_findings(given.run, result, uneven)))


WHATIF_SECTION: Section[WhatIf] = Section(
    name="whatif",
    analyze=_analyze,
    reads=(
        *(ACTIONS, BUCKET_REDUCTIONS, WAITS, INTERRUPTIONS, EXCHANGES, EXPERT_EXCHANGES, LAUNCH_SEGMENTS),
        *(CONFIGURATION, FSDP_REGATHERS, FSDP_UNITS, MEMORY_USE),
    ),
    keeps={WAITS: _waits, INTERRUPTIONS: interruptions, EXCHANGES: exchanges, LAUNCH_SEGMENTS: _segments},
    tables=(tables.WHATIF, tables.WHATIF_SLOWDOWNS, tables.WHATIF_REPLAY),
)
